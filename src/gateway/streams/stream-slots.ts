import { type Clock, systemClock } from '../../base/clock.ts'
import { onAbort } from '../../base/on-abort.ts'
import type { Session } from '../../muxado/session.ts'
import { REQUEST_DEFAULTS } from '../../settings/gateway-settings.ts'
import { BufferAccount } from './buffer-account.ts'
import { chooseEvictions } from './eviction.ts'
import type { NoStreamReason, ProxyStream, StreamClient, StreamWaiter } from './proxy-stream.ts'
import { ServiceConnections, type ServicePressure } from './service-connections.ts'
import { ClientHolding, isEndpointFull, isWithinShare } from './shares.ts'
import { type Asking, type SlotUser, type Waiting, WaitingLine } from './waiting-line.ts'

interface IdleWait {
  readonly slots: StreamSlots
  readonly clock: Clock
  /** Asked at once, and whenever less may be under way. */
  isIdle(): boolean
  readonly withinMs: number
  readonly signal: AbortSignal
}

/** Resolves when a session is idle, when the time is up, or when the signal is aborted. */
export async function untilIdle({
  slots,
  clock,
  isIdle,
  withinMs,
  signal,
}: IdleWait): Promise<void> {
  if (signal.aborted || isIdle()) return
  const watching = new AbortController()
  const stop = () => watching.abort()
  const check = () => {
    if (isIdle()) stop()
  }
  const off = onAbort(signal, stop)
  slots.watchBusy(check, watching.signal)
  // The sleep rejects if there is no more reason to wait.
  await clock.sleep(withinMs, watching.signal).catch(() => {})
  stop()
  off()
}

export interface StreamSlotsLimits {
  /** How long an unused stream is kept; below the keep-alive of common servers (Node: 5 s). */
  readonly idleMs: number
  /** How long an exchange may wait for a stream; with a tick below the 10 s of the agent's probe. */
  readonly queueMs: number
  /** The same for a connection of a service that takes no more of them. */
  readonly serviceQueueMs: number
  /** How many exchanges may wait at once. */
  readonly queueLength: number
  /** Streams that are kept for endpoints that hold few; fewer in a session that has few. */
  readonly reserved: number
  /** Time of waiting after which an exchange of another client is ended. */
  readonly evictAfterMs: number
  /** How many are ended in one tick at most. */
  readonly evictions: number
  /** Bytes a second; a faster exchange is never ended for others. 0: off. */
  readonly leastRate: number
}

export const STREAM_SLOTS_LIMITS: StreamSlotsLimits = {
  idleMs: 4_000,
  queueMs: 7_000,
  serviceQueueMs: 30_000,
  queueLength: 4_096,
  reserved: 16,
  evictAfterMs: 2_000,
  evictions: 8,
  leastRate: REQUEST_DEFAULTS.leastRate,
}

/** A session with few streams reserves no larger part of them. */
const RESERVED_PART = 8

/** The link to the device, as far as it matters when no stream comes free. */
export interface DeviceLink {
  /** Finds out whether it is silent. */
  ask(): void
  readonly isSilent: boolean
}

export interface StreamSlotsOptions {
  readonly session: Session
  readonly link?: DeviceLink
  readonly clock?: Clock
  readonly limits?: Partial<StreamSlotsLimits>
  /** Buffered bytes of the whole gateway. */
  readonly buffers?: BufferAccount
}

/** A request that waits for a service does not wait for the device. */
const isCounted = (user: SlotUser) => mayDial(user)
const mayDial = ({ service }: SlotUser) => service?.isFull !== true

/** How often idle streams and waiting exchanges are looked at. */
const TICK_MS = 500

/**
 * The streams of one agent session, shared by the pools of its endpoints; or of a link to another node,
 * shared by those of its visitors. Pools call all methods except `close()`. The SDK's session dies silently
 * above its limit, so requests without a stream wait in a line.
 *
 * INVARIANTS
 * - A stream counts for its endpoint and its client from the moment an exchange gets it until it is idle
 *   again, or its slot is free. A retired stream holds its slot until the device closes it.
 * - An exchange gets a stream only within the shares of its endpoint and its client (`shares.ts`).
 * - Between two calls, no waiting request could have a stream. If one may have a stream but finds no slot, an
 *   idle stream is retired for it. `#serve` is called whenever a slot or stream becomes free.
 * - Exchanges of others are ended only for requests that have waited for a while.
 */
export class StreamSlots {
  readonly session: Session
  /** How many streams are kept for endpoints that hold few. */
  readonly reserved: number
  /** Buffered bytes of this device. */
  readonly buffers: BufferAccount
  readonly #link: DeviceLink | undefined
  readonly #clock: Clock
  readonly #limits: StreamSlotsLimits
  /** Pools with streams. */
  readonly #users = new Set<SlotUser>()
  /** Clients with streams or waiting requests, by network. */
  readonly #clients = new Map<string, ClientHolding>()
  readonly #line: WaitingLine
  /** Services of the endpoints. */
  readonly #services = new Map<string, ServiceConnections>()
  /** Called when fewer exchanges are running. */
  readonly #busyWatchers = new Set<() => void>()
  readonly #closing = new AbortController()
  /** Idle streams of all pools, the longest unused first. */
  readonly #idle = new Set<ProxyStream>()
  /** Idle streams that were retired for a waiting request and whose slots are not free yet. */
  readonly #freeing = new Set<ProxyStream>()
  #isClosed = false
  #isTicking = false
  #isServing = false
  #isAwaitingSlot = false
  #ticks = 0

  constructor(options: StreamSlotsOptions) {
    const { session, link, clock = systemClock, limits, buffers = new BufferAccount() } = options
    this.session = session
    this.#link = link
    this.buffers = buffers.forDevice()
    this.#clock = clock
    this.#limits = { ...STREAM_SLOTS_LIMITS, ...limits }
    this.#line = new WaitingLine(this.#limits.queueLength)
    const { reserved } = this.#limits
    this.reserved = Math.min(reserved, Math.floor(session.freeSlots / RESERVED_PART))
  }

  /** How many exchanges may wait at once. */
  get queueLength(): number {
    return this.#limits.queueLength
  }

  /** Exchanges that wait for a stream. */
  get waiting(): number {
    return this.#line.length
  }

  /** The service of this device with a key, which includes its configured limit. */
  serviceOf(key: string, max: number | undefined): ServiceConnections {
    const made = { key, clock: this.#clock, max }
    const service = this.#services.get(key) ?? new ServiceConnections(made)
    this.#services.set(key, service)
    return service
  }

  /** Clients that hold streams or wait for one. */
  get clients(): number {
    return this.#clients.size
  }

  /** Increases while a stream is idle or a request waits. */
  get tick(): number {
    return this.#ticks
  }

  /** Free slots, and idle streams whose slots can be freed. */
  get available(): number {
    return this.session.freeSlots + this.#idle.size
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Streams with a running exchange, without upgraded connections. */
  get busy(): number {
    return this.#countBusy((stream) => !stream.isSwitched)
  }

  /** The same with upgraded connections. */
  get inUse(): number {
    return this.#countBusy(() => true)
  }

  /** Calls back each time that fewer streams may be busy, until the signal is aborted. */
  watchBusy(onLess: () => void, signal: AbortSignal): void {
    if (signal.aborted) return
    this.#busyWatchers.add(onLess)
    onAbort(signal, () => this.#busyWatchers.delete(onLess))
  }

  /** A stream of a user has left its exchange, or carries another protocol. */
  onBusyLess(): void {
    if (this.#busyWatchers.size > 0) for (const onLess of [...this.#busyWatchers]) onLess()
  }

  #countBusy(counts: (stream: ProxyStream) => boolean): number {
    let busy = 0
    for (const user of this.#users) for (const stream of user.busy) if (counts(stream)) busy += 1
    return busy
  }

  /** Gives a user a stream for an exchange of a client: at once, or as soon as there is one. */
  request(user: SlotUser, client: StreamClient, waiter: StreamWaiter, isFresh: boolean): void {
    if (this.isClosed) {
      waiter.onNoStream('session-over')
      return
    }
    const clientHolding = this.#clientOf(client.network)
    const asking = { waiter, user, client, clientHolding, isFresh }
    const mayTake = this.#mayTake(asking)
    if (mayTake && this.#hasStream(asking)) {
      this.#give(asking)
    } else if (this.#line.add({ ...asking, since: this.#clock.monotonic() })) {
      if (mayTake) this.#freeSlot(user)
      this.#startTicking()
    } else {
      this.#forget(clientHolding)
      waiter.onNoStream(mayDial(user) ? 'saturated' : 'busy')
    }
  }

  /** Gives an exchange an unused stream that no other visitor may have. */
  resume(user: SlotUser, stream: ProxyStream, client: StreamClient, waiter: StreamWaiter): void {
    this.#lend(user, stream, this.#clientOf(client.network), waiter)
  }

  /** Removes a waiter from the line and does not call it again. */
  cancel(waiter: StreamWaiter): void {
    const waiting = this.#line.remove(waiter)
    if (!waiting) return
    this.#forget(waiting.clientHolding)
    // The rest may have more when no others wait.
    this.#serve()
  }

  /** A stream of a user is idle. */
  onIdle(user: SlotUser, stream: ProxyStream, client: ClientHolding | undefined): void {
    this.#idle.add(stream)
    if (user.service) user.service.idle += 1
    this.#countLess(user)
    // Most clients ask again at once, so empty holdings are removed by the tick.
    if (client) this.#line.countClient(client, -1)
    this.#startTicking()
    this.#serve()
  }

  /** An idle stream of a user was retired, or has closed; it counts again until its slot is free. */
  onIdleRetired(user: SlotUser, stream: ProxyStream): void {
    this.#noIdle(user, stream)
    this.#line.countEndpoint(user, 1)
  }

  #noIdle({ service }: SlotUser, stream: ProxyStream): void {
    if (this.#idle.delete(stream) && service) service.idle -= 1
  }

  /** The slot of a stream that was retired, or has closed, is free. */
  onSlotFree(user: SlotUser, stream: ProxyStream): void {
    this.#freeing.delete(stream)
    this.#countLess(user)
    if (stream.client) {
      this.#line.countClient(stream.client, -1)
      this.#forget(stream.client)
    }
    this.#serve()
  }

  /** Refuses the waiters of a user that has closed. */
  removeUser(user: SlotUser): void {
    const { service } = user
    if (service) {
      service.users -= 1
      if (service.users === 0) this.#services.delete(service.key)
    }
    if (user.holding.waiting === 0) return
    for (const { waiter, user: its } of [...this.#line.all()]) {
      if (its === user) this.#refuse(waiter, 'session-over')
    }
    this.#serve()
  }

  /** Refuses requests that wait for a service without a connection. */
  refuseWaiting(service: ServiceConnections): void {
    for (const { waiter, user } of [...this.#line.all()]) {
      if (user.service === service) this.#refuse(waiter, 'unreachable')
    }
  }

  /** How a service is used while it takes no connection more; undefined while it does. */
  pressureAt(service: ServiceConnections): ServicePressure | undefined {
    if (!service.isFull) return undefined
    const now = this.#clock.monotonic()
    let [waiting, oldestWaitMs, streams] = [0, 0, 0]
    for (const { user, since } of this.#line.all()) {
      if (user.service !== service) continue
      waiting += 1
      oldestWaitMs = Math.max(oldestWaitMs, now - since)
    }
    for (const user of this.#users) {
      if (user.service !== service) continue
      for (const stream of user.busy) if (stream.isSwitched || stream.user?.isLasting) streams += 1
    }
    return { connections: service.connections, streams, waiting, oldestWaitMs }
  }

  /** Retires idle streams and refuses waiting requests. Call it when the session has ended. */
  close(): void {
    this.#isClosed = true
    this.#closing.abort()
    for (const stream of this.#idle) stream.retire()
    for (const { waiter } of [...this.#line.all()]) this.#refuse(waiter, 'session-over')
  }

  /** Within the shares, whether or not there is a stream right now. */
  readonly #mayTake = (asking: Asking): boolean => {
    const { user, clientHolding } = asking
    if (!mayDial(user) && !this.#hasIdle(asking) && user.service?.idle === 0) return false
    const [ofEndpoint, ofClient] = [user.holding.held, clientHolding.held]
    if (isWithinShare(this, ofEndpoint, ofClient)) return true
    const alone = this.#line.aloneness(clientHolding, user, isCounted)
    return isWithinShare(this, ofEndpoint, ofClient, alone)
  }

  /** Within the shares, and there is a stream. */
  readonly #canTake = (waiting: Waiting): boolean =>
    this.#mayTake(waiting) && this.#hasStream(waiting)

  #hasStream(asking: Asking): boolean {
    return (this.session.freeSlots > 0 && mayDial(asking.user)) || this.#hasIdle(asking)
  }

  #hasIdle({ user, isFresh }: Asking): boolean {
    return !isFresh && user.oldestIdle !== Number.POSITIVE_INFINITY
  }

  /** Gives a stream to a request that may have it, if there is one. */
  #give({ waiter, user, client, clientHolding, isFresh }: Asking): void {
    const idle = isFresh ? undefined : user.takeIdle()
    const stream = idle ?? user.open(client)
    if (!stream) {
      this.#forget(clientHolding)
      waiter.onNoStream('session-over')
      return
    }
    this.#lend(user, stream, clientHolding, waiter)
  }

  #lend(
    user: SlotUser,
    stream: ProxyStream,
    clientHolding: ClientHolding,
    waiter: StreamWaiter,
  ): void {
    this.#noIdle(user, stream)
    this.#users.add(user)
    this.#line.countEndpoint(user, 1)
    this.#line.countClient(clientHolding, 1)
    stream.lend(waiter, clientHolding)
    waiter.onStream(stream)
  }

  /** Serves requests that may have a stream, while there are streams. */
  #serve(): void {
    if (this.#isServing || this.#line.length === 0) return
    this.#isServing = true
    try {
      for (;;) {
        const first = this.#line.next(this.#mayTake)
        if (!first) return
        if (!this.#hasStream(first) && this.#freeing.size === 0) this.#freeSlot(first.user)
        // Some peers free the slot before this returns; otherwise another request may fit.
        const next = this.#hasStream(first) ? first : this.#line.next(this.#canTake)
        if (!next) return
        this.#line.remove(next.waiter)
        this.#give(next)
      }
    } finally {
      this.#isServing = false
    }
  }

  /**
   * Retires the longest unused stream of all pools for a waiting request. If its service accepts no more, a
   * stream to the same service.
   */
  #freeSlot(user: SlotUser): void {
    const oldest = mayDial(user) ? firstOf(this.#idle) : this.#oldestIdleAt(user.service)
    if (oldest) {
      // First: its slot may be free before `retire` returns.
      this.#freeing.add(oldest)
      oldest.retire()
    }
    this.#awaitSlot()
  }

  #oldestIdleAt(service: ServiceConnections | undefined): ProxyStream | undefined {
    for (const stream of this.#idle) if (stream.owner.service === service) return stream
    return undefined
  }

  #countLess(user: SlotUser): void {
    this.#line.countEndpoint(user, -1)
    if (user.holding.held === 0) this.#users.delete(user)
  }

  /** Streams that are not a pool's have slots, too. */
  #awaitSlot(): void {
    if (this.#isAwaitingSlot) return
    this.#isAwaitingSlot = true
    this.session.whenFree(() => {
      this.#isAwaitingSlot = false
      this.#serve()
    })
  }

  #refuse(waiter: StreamWaiter, reason: NoStreamReason): void {
    const waiting = this.#line.remove(waiter)
    if (!waiting) return
    this.#forget(waiting.clientHolding)
    waiter.onNoStream(reason)
  }

  #clientOf(network: string): ClientHolding {
    let holding = this.#clients.get(network)
    if (!holding) {
      holding = new ClientHolding(network)
      this.#clients.set(network, holding)
    }
    return holding
  }

  #forget(client: ClientHolding): void {
    if (client.held === 0 && client.waiting === 0) this.#clients.delete(client.network)
  }

  #startTicking(): void {
    if (this.#isTicking) return
    this.#isTicking = true
    // The sleep rejects when the slots are closed; nothing is left to do then.
    this.#tickWhileNeeded().catch(() => {})
  }

  async #tickWhileNeeded(): Promise<void> {
    try {
      while (this.#line.length > 0 || this.#idle.size > 0) {
        await this.#clock.sleep(TICK_MS, this.#closing.signal)
        this.#tick()
      }
    } finally {
      this.#isTicking = false
    }
  }

  #tick(): void {
    this.#ticks += 1
    const { idleMs } = this.#limits
    for (const stream of this.#idle) {
      const unusedMs = (this.#ticks - stream.idleSince) * TICK_MS
      const isOld = unusedMs >= Math.min(idleMs, stream.keepMs)
      // A login lasts as long as its visitor's connection, unless others need the place.
      if (isOld && !stream.isAside) stream.retire()
    }
    for (const client of this.#clients.values()) this.#forget(client)
    if (this.#line.length > 0) this.#link?.ask()
    // A slot that does not get free must not hold up the line.
    this.#freeing.clear()
    // First: a service may take one more by now.
    this.#serve()
    const now = this.#clock.monotonic()
    const { queueMs, serviceQueueMs } = this.#limits
    for (const { waiter, user, since } of this.#line.all()) {
      if (since + queueMs > now) break
      if (mayDial(user)) this.#refuse(waiter, this.#link?.isSilent ? 'silent' : 'saturated')
      else if (since + serviceQueueMs <= now) this.#refuse(waiter, 'busy')
    }
    this.#serve()
    this.#evict(now)
  }

  /** Ends exchanges of others for the next request that has waited long enough. */
  #evict(now: number): void {
    const { leastRate, evictAfterMs, evictions } = this.#limits
    // A request that waits for a service ends no streams.
    const isDue = ({ since, user }: Waiting) => now - since >= evictAfterMs && mayDial(user)
    const waiting = this.#firstDue(isDue)
    if (!waiting || this.#mayTake(waiting)) return
    // Waiting requests would not be served either.
    if (this.#link?.isSilent) return
    let most = 0
    for (const other of this.#line.all()) {
      if (most === evictions || now - other.since < evictAfterMs) break
      if (isDue(other)) most += 1
    }
    const { user, clientHolding } = waiting
    const isAlone = this.#line.aloneness(clientHolding, user, isCounted).endpoint
    const isFull = !isAlone && isEndpointFull(this, user.holding.held)
    const users = this.#users
    const chosen = chooseEvictions({ users, waiting, isEndpointFull: isFull, leastRate, most })
    for (const stream of chosen) stream.user?.evict()
  }

  /** Skips new requests: a client that keeps coming back would always be first. */
  #firstDue(isDue: (waiting: Waiting) => boolean): Waiting | undefined {
    for (const waiting of this.#line.inOrder()) if (isDue(waiting)) return waiting
    return undefined
  }
}

function firstOf<Item>(items: Iterable<Item>): Item | undefined {
  for (const item of items) return item
  return undefined
}
