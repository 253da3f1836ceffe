import type { ConnectionEnds } from '../../base/net/proxy-protocol.ts'
import { MuxadoError } from '../../muxado/error-code.ts'
import type { Stream, StreamHandler } from '../../muxado/stream.ts'
import type { ServiceConnections } from './service-connections.ts'
import type { ClientHolding } from './shares.ts'

/**
 * Why an exchange gets no stream. `saturated`: the device has no stream for it, nor in good time.
 * `silent`: nor does it answer at all. `busy`: its service takes no connection more, nor in good time.
 * `unreachable`: nor does it take any.
 */
export type NoStreamReason = 'saturated' | 'silent' | 'busy' | 'unreachable' | 'session-over'

/** Login state of a request, for the choice of a stream. */
export interface LoginStep {
  /** It goes on with a login that the service has begun on the same connection. */
  readonly isContinued: boolean
}

/** Login state of a response. */
export interface LoginAnswer {
  /** It carries a token: in a refusal the service waits for the client's next step. */
  readonly hasToken: boolean
}

/** See `LoginStreams`. */
export interface VisitorLogins {
  readonly isEmpty: boolean
  takeFor(owner: object, step: LoginStep | undefined): ProxyStream | undefined
  keep(stream: ProxyStream, isBegun: boolean): void
}

/** Client of a stream. */
export interface StreamClient {
  /** `ip:port`. */
  readonly address: string
  /** Network for its share: the IPv4 address, or the /64 of an IPv6 address. */
  readonly network: string
  /** Facts of its connection for the service, read when a stream opens. */
  readonly facts: ConnectionEnds
  /** Streams that stay with its connection; without it, no stream does. */
  readonly logins?: VisitorLogins
}

/** Progress of an exchange, for the choice of one to end while others wait. */
export interface Pace {
  /** Bytes a second, at most, that moved of late; undefined while it is too young to say. */
  readonly rate: number | undefined
  /** Whether bytes of the response wait for the client, which is then the slow side. */
  readonly isHeldUp: boolean
}

/**
 * Waits for a stream. One of the two methods is called once: before the request for a stream returns, or
 * later.
 */
export interface StreamWaiter {
  onStream(stream: ProxyStream): void
  onNoStream(reason: NoStreamReason): void
  /** Asked while it has the stream. */
  readonly pace: Pace
  /** It may keep the stream for hours: a WebSocket, or a response without an end in sight. */
  readonly isLasting?: boolean
  /** It has to give the stream up, because others wait. */
  evict(): void
}

/** Owner of a stream, to which it returns. */
export interface ProxyStreamOwner {
  /** The service that it leads to. */
  readonly service: ServiceConnections | undefined
  /** It is free for another exchange. */
  takeBack(stream: ProxyStream): void
  /** It is unused, and free for the same visitor's connection alone. */
  setAside(stream: ProxyStream): void
  /** The stream is no longer usable, but its slot is not free yet. */
  drop(stream: ProxyStream): void
  /** The service closed it without notice, unused or while a request was on its way. */
  onStale(): void
  /** The service has answered on it. */
  onHeard(): void
  /** It carries another protocol than HTTP from now on, for as long as that likes. */
  onSwitch(): void
  /** The slot is free. Follows on `drop`, once. */
  onSlotFree(stream: ProxyStream): void
}

/** State that stays on a stream from one exchange to the next, and handles its events. */
export interface StreamResident extends StreamHandler {
  /** The stream was given up: no more data in either direction. */
  onRetired(): void
}

type ProxyStreamState = 'busy' | 'idle' | 'aside' | 'retired' | 'closed'

/** A stream that leads to one connection of the device's service; its own handler while unused. */
export class ProxyStream implements StreamHandler {
  readonly stream: Stream
  /** Client of its share, until its slot is free; undefined after it was idle. */
  client: ClientHolding | undefined
  /** The exchange that has it. */
  user: StreamWaiter | undefined
  /** Without one, it is quiet between two exchanges. */
  resident: StreamResident | undefined
  readonly owner: ProxyStreamOwner
  /** No exchange until one takes it: the frame that opens it may end the session. */
  #state: ProxyStreamState = 'closed'
  #isReused = false
  #isSwitched = false
  #isOfOne = false
  #idleSince = 0
  #keepMs = Number.POSITIVE_INFINITY

  constructor(owner: ProxyStreamOwner, open: (handler: StreamHandler) => Stream) {
    this.owner = owner
    this.stream = open(this)
  }

  /** False for the first exchange: then the service has still to be reached. */
  get isReused(): boolean {
    return this.#isReused
  }

  /** Whether it is no longer usable. */
  get isGivenUp(): boolean {
    return this.#state === 'retired' || this.#state === 'closed'
  }

  /** Whether it is an upgraded connection, which a drain does not wait for. */
  get isSwitched(): boolean {
    return this.#isSwitched
  }

  /** The service has answered on it. */
  markHeard(): void {
    this.owner.onHeard()
  }

  /** A 101 was answered on it. */
  markSwitched(): void {
    this.#isSwitched = true
    this.owner.onSwitch()
  }

  /** The tick that `rest()` was told. */
  get idleSince(): number {
    return this.#idleSince
  }

  /** How long it may be unused, by the last answer on it. */
  get keepMs(): number {
    return this.#keepMs
  }

  /** Its owner keeps it for later from this tick on. */
  rest(tick: number): void {
    this.#state = 'idle'
    this.client = undefined
    this.#idleSince = tick
  }

  /** It stays with a visitor's connection from this tick on, unused. */
  restAside(tick: number): void {
    this.rest(tick)
    this.#state = 'aside'
    this.#isOfOne = true
  }

  /** It was set aside once: it never goes to another visitor. */
  get isOfOne(): boolean {
    return this.#isOfOne
  }

  /** Unused, and for one visitor's connection alone. */
  get isAside(): boolean {
    return this.#state === 'aside'
  }

  /** An exchange takes it. */
  lend(user: StreamWaiter, client: ClientHolding): void {
    this.#state = 'busy'
    this.user = user
    this.client = client
  }

  /** Hands the stream back: the exchange on it is over, and both sides keep the connection. */
  release(keepMs = Number.POSITIVE_INFINITY): void {
    this.#keepMs = keepMs
    this.#beUnused()
    this.owner.takeBack(this)
  }

  /** The same for a stream that goes to no other visitor. */
  setAside(): void {
    this.#beUnused()
    this.owner.setAside(this)
  }

  #beUnused(): void {
    this.#isReused = true
    this.stream.rest()
    this.stream.handler = this.resident ?? this
    this.user = undefined
  }

  /** Retires the stream, also after it closed. The service sees the end of its connection. */
  retire(): void {
    if (this.#state === 'retired' || this.#state === 'closed') return
    this.owner.drop(this)
    this.#state = 'retired'
    this.user = undefined
    this.stream.handler = this
    if (this.stream.isClosed) this.onClose()
    else this.stream.retire()
    this.resident?.onRetired()
  }

  /** Takes the stream away from the exchange on it. */
  cut(): void {
    const { handler } = this.stream
    this.retire()
    handler.onClose(new MuxadoError('stream-cancelled', 'the endpoint was closed'))
  }

  /** Unexpected bytes: the next response must not begin with them. */
  onData(): void {
    if (this.#state === 'idle' || this.#state === 'aside') this.owner.onStale()
    this.retire()
  }

  /** The service closed its idle connection. */
  onEnd(): void {
    this.onData()
  }

  onDrain(): void {}

  onClose(): void {
    if (this.#state === 'closed') return
    if (this.#state === 'idle' || this.#state === 'aside') this.owner.onStale()
    if (this.#state !== 'retired') this.owner.drop(this)
    this.#state = 'closed'
    this.owner.onSlotFree(this)
  }
}
