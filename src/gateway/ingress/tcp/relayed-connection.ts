import type { ConnectionStage } from '../../../base/limit/connection-shares.ts'
import { networkOf } from '../../../base/limit/network.ts'
import type { MuxadoError } from '../../../muxado/error-code.ts'
import { DEAF } from '../../../muxado/stream.ts'
import type { HeldRequest } from '../../endpoints/away-name.ts'
import type { RemoteHome } from '../../endpoints/routes/remote-home.ts'
import type { Route } from '../../endpoints/routes/routes.ts'
import { HopReset } from '../../peers/peer-protocol.ts'
import type { VisitorEntry } from '../../peers/visitor-facts.ts'
import { BufferClaim, type BufferHolder } from '../../streams/buffer-account.ts'
import type { Pace, ProxyStream, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { TransportSocket } from '../connection/client-socket.ts'
import { ConnectionFacts } from '../connection/connection-facts.ts'
import type { IngressConnection } from '../connection/ingress-connection.ts'
import { ExchangeTraffic } from '../exchange-traffic.ts'
import { VisitorHops } from '../hop/visitor-hops.ts'
import type { IngressContext } from '../ingress-context.ts'
import { Upgrade } from '../upgrade.ts'
import {
  nextRelayedConnectionState,
  type RelayedConnectionState,
} from './relayed-connection-state.ts'
import { VisitorSocket } from './visitor-socket.ts'

/** What a connection takes while it waits: nothing of it is read. */
const WAITING_BYTES = 2_048
const KEEP_ALIVE_MS = 60_000
/** How often the link to its home may be lost before there was an answer. */
const MAX_LOSSES = 4
const QUIET_MS = 60_000

const ROUTING: RelayedConnectionState = { name: 'routing' }
const OVER: RelayedConnectionState = { name: 'over' }

export interface RelayedConnectionOptions {
  /** Paused, and half-open when its peer has ended. */
  readonly socket: TransportSocket
  readonly entry: VisitorEntry
  readonly context: IngressContext
  /** What was read of it, and put back. */
  readonly waitingBytes?: number
  /** Where its endpoint is now. */
  readonly find: (network: string) => Route | undefined
  onClose(connection: RelayedConnection): void
}

/**
 * A visitor's connection whose bytes go, as they are, to the node where its endpoint is at home; what a
 * policy says of it is said there. Nothing is read of it before that node has said that it is.
 */
export class RelayedConnection
  implements IngressConnection, BufferHolder, StreamWaiter, HeldRequest
{
  readonly network: string
  readonly bytes: number
  readonly facts: ConnectionFacts
  readonly #options: RelayedConnectionOptions
  readonly #visitor: VisitorSocket
  readonly #claim: BufferClaim
  readonly #hops: VisitorHops
  #state = ROUTING
  #disownedBy: string | undefined
  #home: RemoteHome | undefined
  #losses = 0
  #moved = 0
  #movedAt: number

  constructor(options: RelayedConnectionOptions) {
    const { socket, context, waitingBytes = 0, onClose } = options
    this.#options = options
    this.bytes = WAITING_BYTES + waitingBytes
    this.facts = new ConnectionFacts(socket, context.clock.now())
    this.network = networkOf(this.facts.clientIp)
    this.#hops = new VisitorHops(this)
    this.#movedAt = context.now
    this.#claim = new BufferClaim(this, context.buffers)
    this.#visitor = new VisitorSocket({
      socket,
      context,
      onDrain: () => this.#guard(() => this.#onDrain()),
      onClose: () =>
        this.#guard(() => {
          this.#claim.close()
          onClose(this)
          this.#onSocketClose()
        }),
      onHeld: () => this.#claim.update(context.now),
    })
  }

  /** Finds its home; without a place it only closes. */
  start(hasPlace = true): void {
    const { socket } = this.#visitor
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    this.#visitor.listen()
    if (hasPlace) this.#guard(() => this.#route())
    else this.#refuse()
  }

  get stage(): ConnectionStage {
    if (this.#state.name !== 'open') return 'awaited'
    return this.#options.context.now - this.#movedAt < QUIET_MS ? 'busy' : 'awaited'
  }

  get idleSince(): number {
    return this.#movedAt
  }

  yieldPlace(): void {
    this.#visitor.abort()
  }

  stop(): void {
    this.#visitor.abort()
  }

  destroy(): void {
    this.#visitor.abort()
  }

  checkFlood(): void {}

  sweep(now: number): void {
    this.#guard(() => {
      const state = this.#state
      this.#claim.update(now)
      if (state.name === 'parked') this.onNameChange()
      else if (state.name === 'over') this.#visitor.sweepEnded(now)
      else if (state.name === 'open') {
        if (this.movedBytes !== this.#moved) this.#movedAt = now
        this.#moved = this.movedBytes
        state.splice.sweep(now)
      }
    })
  }

  /** See `BufferHolder`. */
  get heldBytes(): number {
    const stuck = this.#state.name === 'open' ? this.#state.splice.heldBytes : 0
    return this.#visitor.heldBytes + stuck
  }

  /** See `BufferHolder`. */
  get movedBytes(): number {
    const received = this.#state.name === 'open' ? this.#state.splice.receivedBytes : 0
    return this.#visitor.takenBytes + received
  }

  /** See `BufferHolder`. */
  onOverBudget(): void {
    this.#visitor.abort()
  }

  /** See `HeldRequest`: looks again where its home is. */
  onNameChange(): void {
    const state = this.#state
    if (state.name !== 'parked') return
    this.#guard(() => {
      this.#options.context.routes.cancel(state.away, this)
      this.#become(ROUTING)
      this.#route()
    })
  }

  /** See `StreamWaiter`: the facts have gone, and the first byte back says that it is the home. */
  onStream(stream: ProxyStream): void {
    this.#become({ name: 'asking', stream })
    stream.stream.handler = {
      ...DEAF,
      onData: (chunk) =>
        this.#guard(() => {
          stream.stream.release(1)
          const splice = this.#open(stream)
          if (chunk.length > 1) splice.onData(chunk.subarray(1))
        }),
      onEnd: () => this.#guard(() => this.#refuse()),
      onClose: (error) => this.#guard(() => this.#onRefusal(stream, error)),
    }
  }

  /** See `StreamWaiter`. */
  onNoStream(): void {
    this.#refuse()
  }

  /** Links have places enough, or none: nobody is ended for others. */
  readonly pace: Pace = { rate: undefined, isHeldUp: false }

  evict(): void {
    this.#visitor.abort()
  }

  #route(): void {
    const { context, find, entry } = this.#options
    const found = find(this.network)
    if (found?.type !== 'remote') {
      // What has come back to this node is found by who connects again.
      this.#refuse()
      return
    }
    const link = context.peers?.find(found.nodeId)
    const isDisowned = this.#disownedBy === found.nodeId
    this.#disownedBy = undefined
    this.#home = found
    if (!isDisowned && link?.session) {
      this.#claim.moveTo(link.buffers, context.now)
      this.#hops.pass(link, entry).acquireFresh(undefined, this)
      return
    }
    const away = context.routes.holdHome?.(found)
    if (away && context.routes.wait(away, this)) this.#become({ name: 'parked', away })
    else this.#refuse()
  }

  #onRefusal(stream: ProxyStream, error: MuxadoError | undefined): void {
    if (this.#state.name !== 'asking') return
    stream.retire()
    const isDisowned = error?.reason === 'stream-reset' && error.code === HopReset.notMine
    const isLost = error !== undefined && error.reason !== 'stream-reset'
    this.#losses += 1
    if ((!isDisowned && !isLost) || (isLost && this.#losses > MAX_LOSSES)) {
      this.#refuse()
      return
    }
    if (isDisowned) this.#disownedBy = this.#home?.nodeId
    this.#become(ROUTING)
    this.#route()
  }

  #open(stream: ProxyStream): Upgrade {
    const { limits } = this.#options.context
    const splice = new Upgrade({
      client: {
        pause: () => this.#visitor.socket.pause(),
        resume: () => this.#visitor.socket.resume(),
        write: (chunk) => this.#visitor.write(chunk),
        end: () => this.#visitor.end(),
        abort: () => this.#visitor.abort(),
      },
      stream,
      // It is counted at its home.
      traffic: new ExchangeTraffic(),
      limits: { ...limits, silenceMs: limits.tcpIdleMs },
      onOver: () => this.#finish(),
    })
    this.#become({ name: 'open', splice })
    const { socket } = this.#visitor
    socket.on('data', (chunk: Buffer) =>
      this.#guard(() => {
        splice.onClientData(chunk)
        this.#claim.update(this.#options.context.now)
      }),
    )
    socket.on('end', () => this.#guard(() => splice.onClientEnd()))
    socket.resume()
    return splice
  }

  #refuse(): void {
    if (this.#state.name === 'asking') this.#state.stream.retire()
    this.#finish()
    this.#visitor.abort()
  }

  #finish(): void {
    if (this.#state.name !== 'over') this.#become(OVER)
  }

  #onDrain(): void {
    this.#visitor.flush()
    this.#claim.update(this.#options.context.now)
    if (!this.#visitor.socket.writableNeedDrain && this.#state.name === 'open')
      this.#state.splice.onClientRoom()
  }

  #onSocketClose(): void {
    const state = this.#state
    if (state.name === 'parked') this.#options.context.routes.cancel(state.away, this)
    if (state.name === 'asking') {
      this.#finish()
      state.stream.retire()
    } else if (state.name === 'open') state.splice.onClientClose()
    else this.#finish()
  }

  #become(next: RelayedConnectionState): void {
    this.#state = nextRelayedConnectionState(this.#state, next)
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (err) {
      this.#options.context.log.error({ err }, 'relayed connection failed')
      this.#visitor.abort()
    }
  }
}
