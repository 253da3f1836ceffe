import { formatListenAddress } from '../../../base/listen-address.ts'
import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { MuxadoError } from '../../../muxado/error-code.ts'
import { DEAF } from '../../../muxado/stream.ts'
import type { HeldRequest } from '../../endpoints/away-name.ts'
import { ofSameAccount, type RemoteHome, type Route } from '../../endpoints/routes.ts'
import type {
  NoStreamReason,
  Pace,
  ProxyStream,
  StreamClient,
  StreamWaiter,
} from '../../streams/proxy-stream.ts'
import { HopReset, type VisitorEntry } from '../../streams/visitor-facts.ts'
import type { TransportSocket } from '../common/client-socket.ts'
import { ConnectionFacts } from '../common/connection-facts.ts'
import { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { VisitorHops } from '../device/visitor-hops.ts'
import type { Upgrade } from '../exchange/upgrade.ts'
import type { IngressConnection } from './ingress-connection.ts'
import {
  nextRelayedConnectionState,
  type RelayedConnectionState,
} from './relayed-connection-state.ts'
import { SplicedVisitor } from './spliced-visitor.ts'

/** What a connection takes while it waits: nothing of it is read. */
const WAITING_BYTES = 2_048
/** How often the link to its home may be lost before there was an answer. */
const MAX_LOSSES = 4

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
  /** Whose connection it was until a policy has handed it on: that one still hears of its socket. */
  readonly taken?: {
    readonly visitor: SplicedVisitor
    readonly facts: ConnectionFacts
    readonly traffic: ExchangeTraffic
  }
  onClose(connection: RelayedConnection): void
}

/**
 * A visitor's connection whose bytes go, as they are, to the node where its endpoint is at home; what a
 * policy says of it is said there. Nothing is read of it before that node has said that it is.
 */
export class RelayedConnection
  implements IngressConnection, StreamClient, StreamWaiter, HeldRequest
{
  readonly address: string
  readonly network: string
  readonly bytes: number
  readonly facts: ConnectionFacts
  readonly #options: RelayedConnectionOptions
  readonly #visitor: SplicedVisitor
  readonly #hops: VisitorHops
  /** It is counted at its home; here it is by who has handed it on. */
  readonly #traffic: ExchangeTraffic
  #state = ROUTING
  #disownedBy: string | undefined
  #home: RemoteHome | undefined
  #losses = 0

  constructor(options: RelayedConnectionOptions) {
    const { socket, context, waitingBytes = 0, taken, onClose } = options
    this.#options = options
    this.bytes = WAITING_BYTES + waitingBytes
    this.facts = taken?.facts ?? new ConnectionFacts(socket, context.clock.now())
    const { clientIp: host, clientPort: port } = this.facts
    this.address = formatListenAddress({ host, port })
    this.network = networkOf(host)
    this.#hops = new VisitorHops(this)
    this.#traffic = taken?.traffic ?? new ExchangeTraffic()
    this.#visitor =
      taken?.visitor ??
      new SplicedVisitor({
        socket,
        context,
        onOverBudget: () => this.evict(),
        onClose: () => {
          onClose(this)
          this.onSocketClose()
        },
      })
  }

  /** Finds its home; without a place it only closes. */
  start(hasPlace = true): void {
    if (!this.#options.taken) this.#visitor.listen()
    if (hasPlace) this.#visitor.guard(() => this.#route())
    else this.#refuse()
  }

  get stage(): ConnectionStage {
    return this.#visitor.stage
  }

  get idleSince(): number {
    return this.#visitor.idleSince
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
    this.#visitor.guard(() => {
      if (this.#state.name === 'parked') this.onNameChange()
      this.#visitor.sweep(now, this.#state.name === 'over')
    })
  }

  /** See `HeldRequest`: looks again where its home is. */
  onNameChange(): void {
    const state = this.#state
    if (state.name !== 'parked') return
    this.#visitor.guard(() => {
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
        this.#visitor.guard(() => {
          stream.stream.release(1)
          const splice = this.#open(stream)
          if (chunk.length > 1) splice.onData(chunk.subarray(1))
        }),
      onEnd: () => this.#visitor.guard(() => this.#refuse()),
      onClose: (error) => this.#visitor.guard(() => this.#onRefusal(stream, error)),
    }
  }

  /** See `StreamWaiter`. */
  onNoStream(reason: NoStreamReason): void {
    if (this.#state.name !== 'dialling') return
    this.#losses += 1
    if (reason !== 'session-over' || this.#losses > MAX_LOSSES) {
      this.#refuse()
      return
    }
    this.#become(ROUTING)
    setImmediate(() => this.#visitor.guard(() => this.#route()))
  }

  /** What it moves is looked at where it is at home. */
  readonly pace: Pace = { rate: undefined, isHeldUp: false }

  evict(): void {
    this.#visitor.abort()
  }

  #route(): void {
    if (this.#state.name !== 'routing') return
    const { context, find, entry } = this.#options
    const found = ofSameAccount(find(this.network), this.#home)
    if (found?.type !== 'remote') {
      // What has come back to this node is found by who connects again.
      this.#refuse()
      return
    }
    const link = context.peers?.find(found.nodeId)?.slots
    const isDisowned = this.#disownedBy === found.nodeId
    this.#disownedBy = undefined
    this.#home = found
    if (!isDisowned && link) {
      this.#visitor.claim.moveTo(link.buffers, context.now)
      const streams = this.#hops.pass(link, entry)
      this.#become({ name: 'dialling', streams })
      streams.acquireFresh(this, this)
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
    this.#become({ name: 'open' })
    return this.#visitor.splice({
      stream,
      traffic: this.#traffic,
      onOver: () => this.#finish(),
    })
  }

  #refuse(): void {
    if (this.#state.name === 'asking') this.#state.stream.retire()
    this.#traffic.refuse(undefined)
    this.#finish()
    this.#visitor.abort()
  }

  #finish(): void {
    if (this.#state.name !== 'over') this.#become(OVER)
  }

  /** For whom it was taken from; see `RelayedConnectionOptions`. */
  onSocketClose(): void {
    const state = this.#state
    if (state.name === 'parked') this.#options.context.routes.cancel(state.away, this)
    if (state.name === 'dialling') state.streams.cancel(this)
    if (state.name === 'open') return
    this.#finish()
    if (state.name === 'asking') state.stream.retire()
  }

  #become(next: RelayedConnectionState): void {
    this.#state = nextRelayedConnectionState(this.#state, next)
  }
}
