import type { TLSSocket } from 'node:tls'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { ConnectionStage, SharedConnection } from '../../../base/net/connection-shares.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { EndTls, Outcome, TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { TlsSession } from '../../../policy/exchange/policy-exchange.ts'
import { Account } from '../../../policy/expression/account.ts'
import type { AgentEndpoint, Endpoint } from '../../endpoints/endpoint.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import type { RemoteEndpoint, Route } from '../../endpoints/routes.ts'
import type { NoStreamReason, Pace, ProxyStream, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { TransportSocket } from '../common/client-socket.ts'
import { ConnectionFacts, plainAddress } from '../common/connection-facts.ts'
import { type EdgeErrorCode, TOO_SLOW } from '../common/edge-error.ts'
import { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { FAILURE_CODES } from '../device/forward.ts'
import { CertificateTooLargeError, tlsFacts } from '../device/peer-streams.ts'
import { type NameQuery, NameSearch, type Searcher } from '../exchange/name-search.ts'
import { connectVerdict } from '../exchange/policy-run.ts'
import { RelayedConnection } from './relayed-connection.ts'
import { SplicedVisitor } from './spliced-visitor.ts'

/** State of a visitor's connection. Nothing is read from it before `open`. */
type TcpConnectionState =
  /** Looks for its endpoint, or waits for it. */
  | { readonly name: 'searching' }
  /** `on_tcp_connect` decides about it. */
  | { readonly name: 'judging'; readonly endpoint: Endpoint }
  /** Waits for a stream to the device. */
  | { readonly name: 'dialling'; readonly endpoint: AgentEndpoint }
  /** Bytes pass in both directions. */
  | { readonly name: 'open' }
  /** A policy forwarded it to an endpoint at another node, and that node decides the rest. */
  | { readonly name: 'relayed'; readonly relay: RelayedConnection }
  | { readonly name: 'over' }

type Name = TcpConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  searching: ['judging', 'relayed', 'over'],
  // Searches again if the connection is forwarded.
  judging: ['dialling', 'searching', 'over'],
  // Searches again if the session was lost before there was a stream.
  dialling: ['open', 'searching', 'over'],
  open: ['over'],
  relayed: ['over'],
  over: [],
}

/** Returns the next state. Throws if the transition is not allowed, which can only be a bug. */
function nextTcpConnectionState(
  state: TcpConnectionState,
  next: TcpConnectionState,
): TcpConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a connection cannot be ${next.name} after ${state.name}`)
}

/** Memory of a connection that waits for a device and from which nothing is read, in bytes. */
const WAITING_BYTES = 2_048

const SEARCHING: TcpConnectionState = { name: 'searching' }
const OVER: TcpConnectionState = { name: 'over' }

export interface TcpConnectionOptions {
  /** Paused, and half-open after its peer has ended. */
  readonly socket: TransportSocket
  /** Additional memory while it waits, in bytes; small if nothing was read. */
  readonly waitingBytes?: number
  readonly context: IngressContext
  /** Finds the holder of the address that the visitor connected to; `network` is the visitor's. */
  readonly find: (network: string) => NameState | undefined
  /** Number of endpoints that forwarded it, and the TLS session that ended on the way. */
  readonly handed?: { readonly hops: number; readonly tls: TlsSession | undefined } | undefined
  /** Name that the visitor sent unencrypted at the start of TLS. */
  readonly serverName?: string | undefined
  /** Begins to end TLS on the socket; absent if visitors do not use TLS. */
  readonly endTls?: (terms: TlsTerms) => TlsBegun
  onClose(connection: TcpConnection): void
}

/** A TLS handshake in progress. */
export interface TlsBegun {
  readonly secured: TLSSocket
  readonly agreed: Promise<boolean>
}

/**
 * A visitor's connection to a TCP endpoint. Its bytes go to the device unchanged, on one stream for its whole
 * life. Nothing is read from it before the policy and the device have accepted it.
 *
 * INVARIANTS
 * - It has one state of `TcpConnectionState`, which only `#become` changes. An event that does not fit the
 *   state is late and is ignored.
 * - It holds at most one stream. On the way to `over` the stream is given up. The socket is closed then, or
 *   closes after earlier writes.
 */
export class TcpConnection implements SharedConnection, StreamWaiter, Searcher, NameQuery {
  readonly address: string
  readonly network: string
  readonly waitingBytes: number
  /** See `StreamClient`. */
  readonly facts: ConnectionFacts
  readonly #context: IngressContext
  #find: (network: string) => Route | undefined
  readonly #onClose: (connection: TcpConnection) => void
  readonly #openedAt: number
  readonly #visitor: SplicedVisitor
  readonly #search: NameSearch
  readonly #beginTls: TcpConnectionOptions['endTls']
  readonly #traffic = new ExchangeTraffic()
  readonly #socket: TransportSocket
  /** Number of endpoints that forwarded it. */
  #hops: number
  /** Set if the next endpoint is judged in addition to the endpoint that forwarded to it. */
  #isHandedOn = false
  /** TLS ended for an endpoint that forwarded the connection: later endpoints get the decrypted bytes. */
  #hasTlsEndedBefore: boolean
  /** Forwarding target of a policy, and the account whose internal endpoints it may reach. */
  #handed: { readonly url: string; readonly ownerId: string | null } | undefined
  /** Joint cost budget of the policies on its way. */
  #budget = new Account()
  #endpoint: Endpoint | undefined
  #tlsEndedFor: Endpoint | undefined
  #state: TcpConnectionState = SEARCHING
  #hasAnswered = false

  constructor({ socket, context, find, onClose, ...options }: TcpConnectionOptions) {
    this.waitingBytes = WAITING_BYTES + (options.waitingBytes ?? 0)
    this.#context = context
    this.#find = find
    this.#onClose = onClose
    this.#openedAt = context.clock.now()
    const ip = plainAddress(socket.remoteAddress ?? '')
    this.address = formatListenAddress({ host: ip, port: socket.remotePort ?? 0 })
    this.network = networkOf(ip)
    const { handed, serverName } = options
    this.facts = new ConnectionFacts(socket, this.#openedAt, context.addresses, {
      serverName,
      tls: handed?.tls,
    })
    this.#search = new NameSearch(context, this)
    this.#socket = socket
    this.#hops = handed?.hops ?? 0
    this.#hasTlsEndedBefore = handed?.tls !== undefined
    this.#beginTls = options.endTls
    this.#visitor = new SplicedVisitor({
      socket,
      context,
      onOverBudget: () => this.evict(),
      onClose: () => this.#onSocketClose(),
    })
  }

  /** Finds the endpoint. Without a place, only closes the connection. */
  start(hasPlace = true): void {
    this.#visitor.listen()
    if (hasPlace) this.guard(() => this.#search.start(this))
    else this.abort()
  }

  get stage(): ConnectionStage {
    return this.#visitor.stage
  }

  get idleSince(): number {
    return this.#visitor.idleSince
  }

  yieldPlace(): void {
    this.abort()
  }

  /** A stop does not wait for a connection that may last for days. */
  stop(): void {
    this.abort()
  }

  destroy(): void {
    this.abort()
  }

  /** Resets the connection, so that the visitor sees that data is missing. */
  abort(): void {
    this.#visitor.abort()
  }

  /** Does nothing: all data goes on to the device and causes no useless work here. */
  checkFlood(): void {}

  /** Checks the deadlines; `now` is monotonic. */
  sweep(now: number): void {
    this.#visitor.guard(() => {
      this.#search.again()
      if (this.#state.name === 'relayed') this.#state.relay.sweep(now)
      else this.#visitor.sweep(now, this.#state.name === 'over')
    })
  }

  /** See `StreamWaiter`. */
  get pace(): Pace {
    return this.#visitor.pace
  }

  /** See `StreamWaiter`. */
  evict(): void {
    this.#traffic.refuse(TOO_SLOW)
    this.abort()
  }

  /** See `Searcher`. */
  guard(step: () => void): void {
    this.#visitor.guard(step)
  }

  /** See `StreamWaiter`. */
  onStream(stream: ProxyStream): void {
    const { clock } = this.#context
    stream.markSwitched()
    this.#become({ name: 'open' })
    this.#visitor.splice({
      stream,
      traffic: this.#traffic,
      write: (chunk) => this.#write(chunk),
      end: () => this.#onServiceEnd(),
      onOver: (bytesIn, bytesOut) => {
        const { address: client } = this
        const ms = clock.now() - this.#openedAt
        const endpoint = this.#endpoint?.id
        this.#context.log.debug({ client, endpoint, bytesIn, bytesOut, ms }, 'connection')
        if (!this.#hasAnswered) this.#noteOutcome('abandoned')
        this.#finish()
      },
    })
  }

  /** See `StreamWaiter`. */
  onNoStream(reason: NoStreamReason): void {
    if (this.#state.name !== 'dialling') return
    const isLost = reason === 'session-over'
    if (isLost && this.#search.lost()) this.#become(SEARCHING)
    else this.#refuse(FAILURE_CODES[isLost ? 'lost' : reason])
  }

  /** See `NameQuery`. */
  find(): Route | undefined {
    return this.#find(this.network)
  }

  onFound(found: Endpoint | RemoteEndpoint): void {
    if (found.type === 'remote') this.#relay()
    else this.#judge(found)
  }

  /**
   * The name has no endpoint. If the connection was forwarded, the forwarding endpoint counts the refusal.
   */
  onNone(): void {
    this.#drop()
  }

  #judge(endpoint: Endpoint): void {
    this.#endpoint = endpoint
    if (this.#isHandedOn) this.#traffic.enter(endpoint.traffic)
    else {
      this.#traffic.move(endpoint.traffic)
      this.#budget = new Account()
    }
    this.#isHandedOn = false
    if (endpoint.type === 'agent') {
      this.#visitor.claim.moveTo(endpoint.streams.buffers, this.#context.now)
    }
    const state: TcpConnectionState = { name: 'judging', endpoint }
    this.#become(state)
    const outcome = connectVerdict(endpoint, this.facts, {
      endTls: this.#endTls,
      hops: this.#hops,
      account: this.#budget,
    })
    if (!(outcome instanceof Promise)) {
      this.#follow(outcome, endpoint)
      return
    }
    void outcome
      .catch((err): Outcome => {
        this.#context.log.error({ err, endpoint: endpoint.id }, 'policy failed')
        return { kind: 'close' }
      })
      .then((verdict) =>
        this.#visitor.guard(() => {
          if (this.#state === state) this.#follow(verdict, endpoint)
          // If the handshake fails, the connection is over before the policy reports its outcome.
          else if (verdict.kind !== 'continue') this.#traffic.refuse(undefined)
        }),
      )
  }

  /** Ends TLS at the first call. Later calls only report whether the existing TLS has the same terms. */
  readonly #endTls: EndTls = async (terms) => {
    this.#tlsEndedFor = this.#endpoint
    const { tls } = this.facts
    if (tls) return tls.terms === terms.id ? 'ended' : 'otherwise'
    if (!this.#beginTls) return 'otherwise'
    const { secured, agreed } = this.#beginTls(terms)
    this.#visitor.secure(secured)
    if (!(await agreed)) return 'failed'
    this.facts.secure(secured, terms)
    return 'ended'
  }

  #follow(outcome: Outcome, endpoint: Endpoint): void {
    // The successor of a lost endpoint may expect TLS to be passed on, which is impossible after TLS has
    // ended.
    const isTlsAsAsked = this.#hasTlsEndedBefore || this.#tlsEndedFor === endpoint
    const isAsAsked = !this.facts.tls || isTlsAsAsked
    if (outcome.kind === 'forward' && isAsAsked) {
      this.#handOn(outcome.url, endpoint)
    } else if (outcome.kind === 'continue' && isAsAsked && endpoint.type === 'agent') {
      this.#become({ name: 'dialling', endpoint })
      endpoint.streams.acquireFresh(this, this)
    } else {
      this.#drop()
    }
  }

  /** Forwards to an internal endpoint that the account can reach. The policy of that endpoint runs next. */
  #handOn(url: string, { ownerId }: Endpoint): void {
    const { routes } = this.#context
    const target = new URL(url)
    this.#find = (network) => routes.matchInternal(target, ownerId, network)
    this.#handed = { url, ownerId }
    this.#hops += 1
    this.#isHandedOn = true
    this.#hasTlsEndedBefore = this.facts.tls !== undefined
    this.#become(SEARCHING)
    this.#search.start(this)
  }

  /** Relays to the node that serves the forwarding target. */
  #relay(): void {
    const { facts } = this
    const handed = this.#handed
    if (!handed) throw new Error('a connection can go to another node only when it is handed on')
    let tls: ReturnType<typeof tlsFacts> | undefined
    try {
      tls = facts.tls && tlsFacts(facts.tls)
    } catch (error) {
      if (!(error instanceof CertificateTooLargeError)) throw error
      this.#drop()
      return
    }
    const relay = new RelayedConnection({
      socket: this.#socket,
      context: this.#context,
      entry: {
        kind: 'handed',
        url: handed.url,
        owner_id: handed.ownerId,
        hops: this.#hops,
        ...(tls && { tls }),
      },
      find: (network) => this.#find(network),
      taken: { visitor: this.#visitor, facts, traffic: this.#traffic },
      onClose: () => {},
    })
    this.#become({ name: 'relayed', relay })
    relay.start()
  }

  #drop(): void {
    this.#traffic.refuse(undefined)
    this.#finish()
    this.abort()
  }

  #write(chunk: Buffer): boolean {
    if (!this.#hasAnswered) this.#noteOutcome('answered')
    return this.#visitor.write(chunk)
  }

  /** The SDK reports no error if it cannot reach the service: only the stream ends. */
  #onServiceEnd(): void {
    if (!this.#hasAnswered && this.#visitor.hasEnded) {
      // The service received all data and has no answer.
      this.#noteOutcome('answered')
    } else if (!this.#hasAnswered) {
      this.#traffic.refuse('ERR_NGROK_8012' satisfies EdgeErrorCode)
      this.#noteOutcome('unreachable')
    }
    this.#visitor.end()
  }

  #noteOutcome(outcome: 'answered' | 'unreachable' | 'abandoned'): void {
    this.#hasAnswered = true
    const outcomes = this.#endpoint?.traffic.outcomes
    const now = this.#context.clock.monotonic()
    // Silence is not an error: a client may wait hours for data of a service.
    if (outcomes) outcomes.end(outcomes.begin(now), outcome, now)
  }

  #refuse(code: EdgeErrorCode): void {
    this.#traffic.refuse(code)
    this.#finish()
    this.abort()
  }

  #finish(): void {
    if (this.#state.name === 'over') return
    this.#become(OVER)
    this.#traffic.end()
  }

  #onSocketClose(): void {
    const state = this.#state
    this.#onClose(this)
    if (state.name === 'searching') this.#search.stop()
    else if (state.name === 'dialling') state.endpoint.streams.cancel(this)
    else if (state.name === 'relayed') state.relay.onSocketClose()
    if (state.name !== 'open') this.#finish()
  }

  #become(next: TcpConnectionState): void {
    this.#state = nextTcpConnectionState(this.#state, next)
  }
}
