import { formatListenAddress } from '../../../base/listen-address.ts'
import type { ConnectionStage } from '../../../base/net/connection-shares.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { MuxadoError } from '../../../muxado/error-code.ts'
import { DEAF } from '../../../muxado/stream.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { RemoteEndpoint, Route } from '../../endpoints/routes.ts'
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
import { type PeerStreams, VisitorPeerStreams } from '../device/peer-streams.ts'
import { type NameQuery, NameSearch, type Searcher } from '../exchange/name-search.ts'
import type { Upgrade } from '../exchange/upgrade.ts'
import { SplicedVisitor } from './spliced-visitor.ts'
import type { IngressConnection } from './visitor.ts'

/** State of a connection whose bytes go to another node. Nothing is read from it before `open`. */
type RelayedConnectionState =
  /** Looks for the serving node of its endpoint, or waits for it. */
  | { readonly name: 'searching' }
  /** Waits for a stream to the serving node. */
  | { readonly name: 'dialling'; readonly streams: PeerStreams }
  /** Has asked a node whether it serves the name. */
  | { readonly name: 'asking'; readonly stream: ProxyStream }
  /** Bytes pass in both directions. */
  | { readonly name: 'open' }
  | { readonly name: 'over' }

type Name = RelayedConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  searching: ['dialling', 'over'],
  // Searches again if the link was lost before there was a stream.
  dialling: ['asking', 'searching', 'over'],
  // Searches again if the node does not serve the name, or its link was lost.
  asking: ['open', 'searching', 'over'],
  open: ['over'],
  over: [],
}

/** Returns the next state. Throws if the transition is not allowed, which can only be a bug. */
export function nextRelayedConnectionState(
  state: RelayedConnectionState,
  next: RelayedConnectionState,
): RelayedConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a relayed connection cannot be ${next.name} after ${state.name}`)
}

/** Memory of a waiting connection, from which nothing is read, in bytes. */
const WAITING_BYTES = 2_048

const SEARCHING: RelayedConnectionState = { name: 'searching' }
const OVER: RelayedConnectionState = { name: 'over' }

export interface RelayedConnectionOptions {
  /** Paused, and half-open after its peer has ended. */
  readonly socket: TransportSocket
  readonly entry: VisitorEntry
  readonly context: IngressContext
  /** Bytes that were read from it and put back. */
  readonly waitingBytes?: number
  /** Returns the current route of its endpoint. */
  readonly find: (network: string) => Route | undefined
  /**
   * Previous owner's parts, if a policy forwarded the connection. The owner still gets the socket's events.
   */
  readonly taken?: {
    readonly visitor: SplicedVisitor
    readonly facts: ConnectionFacts
    readonly traffic: ExchangeTraffic
  }
  onClose(connection: RelayedConnection): void
}

/**
 * A visitor's connection whose bytes go unchanged to the node that serves its endpoint. Policies run there.
 * Nothing is read from the connection before that node has confirmed that it serves the name.
 */
export class RelayedConnection
  implements IngressConnection, StreamClient, StreamWaiter, Searcher, NameQuery
{
  readonly address: string
  readonly network: string
  readonly waitingBytes: number
  readonly facts: ConnectionFacts
  readonly #options: RelayedConnectionOptions
  readonly #visitor: SplicedVisitor
  readonly #hops: VisitorPeerStreams
  readonly #search: NameSearch
  /** The serving node counts the connection. Here it is counted only if an endpoint forwarded it. */
  readonly #traffic: ExchangeTraffic
  #state = SEARCHING

  constructor(options: RelayedConnectionOptions) {
    const { socket, context, waitingBytes = 0, taken, onClose } = options
    this.#options = options
    this.waitingBytes = WAITING_BYTES + waitingBytes
    this.facts = taken?.facts ?? new ConnectionFacts(socket, context.clock.now())
    const { clientIp: host, clientPort: port } = this.facts
    this.address = formatListenAddress({ host, port })
    this.network = networkOf(host)
    this.#hops = new VisitorPeerStreams(this)
    this.#search = new NameSearch(context, this)
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

  /** Finds the serving node. Without a place, only closes the connection. */
  start(hasPlace = true): void {
    if (!this.#options.taken) this.#visitor.listen()
    if (hasPlace) this.guard(() => this.#search.start(this))
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
      this.#search.again()
      this.#visitor.sweep(now, this.#state.name === 'over')
    })
  }

  /** See `Searcher`. */
  guard(step: () => void): void {
    this.#visitor.guard(step)
  }

  /** See `StreamWaiter`: the facts were sent. The first byte back confirms that the node serves the name. */
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
    if (reason === 'session-over' && this.#search.lost()) this.#become(SEARCHING)
    else this.#refuse()
  }

  /** The serving node watches the rate. */
  readonly pace: Pace = { rate: undefined, isHeldUp: false }

  evict(): void {
    this.#visitor.abort()
  }

  /** See `NameQuery`. An endpoint that came back to this node is not used: the visitor has to reconnect. */
  find(): Route | undefined {
    const found = this.#options.find(this.network)
    return found?.type === 'remote' ? found : undefined
  }

  onFound(found: Endpoint | RemoteEndpoint): void {
    const link = found.type === 'remote' ? this.#search.reach(found) : undefined
    if (!link) return
    this.#visitor.claim.moveTo(link.buffers, this.#options.context.now)
    const streams = this.#hops.pass(link, this.#options.entry)
    this.#become({ name: 'dialling', streams })
    streams.acquireFresh(this, this)
  }

  onNone(): void {
    this.#refuse()
  }

  #onRefusal(stream: ProxyStream, error: MuxadoError | undefined): void {
    if (this.#state.name !== 'asking') return
    stream.retire()
    if (error?.reason === 'stream-reset' && error.code === HopReset.notMine) {
      this.#become(SEARCHING)
      this.#search.disowned()
    } else if (error && error.reason !== 'stream-reset' && this.#search.lost()) {
      this.#become(SEARCHING)
    } else {
      this.#refuse()
    }
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

  /** Also called by the previous owner of the socket; see `RelayedConnectionOptions`. */
  onSocketClose(): void {
    const state = this.#state
    if (state.name === 'searching') this.#search.stop()
    if (state.name === 'dialling') state.streams.cancel(this)
    if (state.name === 'open') return
    this.#finish()
    if (state.name === 'asking') state.stream.retire()
  }

  #become(next: RelayedConnectionState): void {
    this.#state = nextRelayedConnectionState(this.#state, next)
  }
}
