import type { TLSSocket } from 'node:tls'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { ConnectionStage, SharedConnection } from '../../../base/net/connection-shares.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { EndTls, Outcome, TlsTerms } from '../../../policy/exchange/outcome.ts'
import type { TlsSession } from '../../../policy/exchange/policy-exchange.ts'
import { Account } from '../../../policy/expression/account.ts'
import type { AgentEndpoint, Endpoint } from '../../endpoints/endpoint.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import type { RemoteHome, Route } from '../../endpoints/routes.ts'
import type { NoStreamReason, Pace, ProxyStream, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { TransportSocket } from '../common/client-socket.ts'
import { ConnectionFacts, plainAddress } from '../common/connection-facts.ts'
import { type EdgeErrorCode, TOO_SLOW } from '../common/edge-error.ts'
import { ExchangeTraffic } from '../common/exchange-traffic.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { FAILURE_CODES } from '../device/forward.ts'
import { CertificateTooLargeError, tlsFacts } from '../device/visitor-hops.ts'
import { type NameQuery, NameSearch, type Searcher } from '../exchange/name-search.ts'
import { connectVerdict } from '../exchange/policy-run.ts'
import { RelayedConnection } from './relayed-connection.ts'
import { SplicedVisitor } from './spliced-visitor.ts'

/** Where a connection of a visitor is. Before `open` nothing is read of it. */
type TcpConnectionState =
  /** Its endpoint is searched, or waited for. */
  | { readonly name: 'searching' }
  /** `on_tcp_connect` decides about it. */
  | { readonly name: 'judging'; readonly endpoint: Endpoint }
  /** It has asked for a stream to the device. */
  | { readonly name: 'dialling'; readonly endpoint: AgentEndpoint }
  /** Bytes pass by, both ways. */
  | { readonly name: 'open' }
  /** A policy has handed it on to an endpoint at another node: what becomes of it is decided there. */
  | { readonly name: 'relayed'; readonly relay: RelayedConnection }
  | { readonly name: 'over' }

type Name = TcpConnectionState['name']

const NEXT: Record<Name, readonly Name[]> = {
  searching: ['judging', 'relayed', 'over'],
  // It is handed on.
  judging: ['dialling', 'searching', 'over'],
  // Its session was lost before there was a stream.
  dialling: ['open', 'searching', 'over'],
  open: ['over'],
  relayed: ['over'],
  over: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
function nextTcpConnectionState(
  state: TcpConnectionState,
  next: TcpConnectionState,
): TcpConnectionState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a connection cannot be ${next.name} after ${state.name}`)
}

/** What a connection takes while it waits for a device: nothing of it is read. */
const WAITING_BYTES = 2_048

const SEARCHING: TcpConnectionState = { name: 'searching' }
const OVER: TcpConnectionState = { name: 'over' }

export interface TcpConnectionOptions {
  /** Paused, and half-open when its peer has ended. */
  readonly socket: TransportSocket
  /** What it takes in memory while it waits; little where nothing was read of it. */
  readonly waitingBytes?: number
  readonly context: IngressContext
  /** Who has the address that the visitor came to; `network` is the visitor's. */
  readonly find: (network: string) => NameState | undefined
  /** How many endpoints have handed it on, and the TLS that has ended on the way. */
  readonly handed?: { readonly hops: number; readonly tls: TlsSession | undefined } | undefined
  /** The name that the visitor has said in the clear, at the begin of its TLS. */
  readonly serverName?: string | undefined
  /** Begins to end TLS on the socket; absent where visitors speak none. */
  readonly endTls?: (terms: TlsTerms) => TlsBegun
  onClose(connection: TcpConnection): void
}

/** TLS that is being agreed on. */
export interface TlsBegun {
  readonly secured: TLSSocket
  readonly agreed: Promise<boolean>
}

/**
 * A visitor's connection to a TCP endpoint: its bytes go to the device as they are, on one stream
 * for all its life. Nothing is read of it before the policy and the device have taken it.
 *
 * INVARIANTS
 * - It is in one state of `TcpConnectionState`, and only `#become` changes that; what does not
 *   belong to the state it comes in is late and does nothing.
 * - It holds at most one stream; on the way to `over` that is given up, and the socket is closed, or
 *   closes behind what was written.
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
  /** How many endpoints have handed it on. */
  #hops: number
  /** Set when the endpoint that is judged next comes after the one that has handed it on. */
  #isHandedOn = false
  /** TLS has ended for an endpoint that has handed it on: what follows gets what was in it. */
  #hasTlsEndedBefore: boolean
  /** Where a policy has handed it on to, and whose internal endpoints that may be. */
  #handed: { readonly url: string; readonly ownerId: string | null } | undefined
  /** What the policies on its way may cost together. */
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

  /** Finds the endpoint; without a place it only closes. */
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

  /** Nobody waits for its end: it may last for days. */
  stop(): void {
    this.abort()
  }

  destroy(): void {
    this.abort()
  }

  /** Breaks it off, so that the visitor sees that something is missing. */
  abort(): void {
    this.#visitor.abort()
  }

  /** What comes goes on to the device: there is nothing to be kept busy with. */
  checkFlood(): void {}

  /** Looks at the deadlines; `now` is monotonic. */
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

  onFound(found: Endpoint | RemoteHome): void {
    if (found.type === 'remote') this.#relay()
    else this.#judge(found)
  }

  /** What it was handed on to has gone: who has handed it on counts that. */
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
          // TLS that does not come about is over before anybody has heard of that.
          else if (verdict.kind !== 'continue') this.#traffic.refuse(undefined)
        }),
      )
  }

  /** At the first asking; whoever asks later gets what there is. */
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
    // One that was lost may have a successor to which TLS is to be passed on: it is too late for that.
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

  /** Goes on to an internal endpoint that `from` reaches; its policy runs in its turn. */
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

  /** What it was handed on to is at another node. */
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

  /** The SDK says nothing when it cannot reach the service: its end is all that comes. */
  #onServiceEnd(): void {
    if (!this.#hasAnswered && this.#visitor.hasEnded) {
      // The service had what there was, and has nothing to say to it.
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
    // Silence is no fault here: a client may wait for hours for what a service has to say.
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
