import type { TLSSocket } from 'node:tls'
import type { ConnectionStage, SharedConnection } from '../../../base/limit/connection-shares.ts'
import { networkOf } from '../../../base/limit/network.ts'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { Outcome } from '../../../policy/exchange/outcome.ts'
import type { EndTls, TlsTerms } from '../../../policy/exchange/tls-terms.ts'
import type { HeldRequest } from '../../endpoints/away-name.ts'
import type { AgentEndpoint } from '../../endpoints/endpoint.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import { ofSameAccount, type RouteAccount } from '../../endpoints/routes/routes.ts'
import type { NoStreamReason, Pace, ProxyStream, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { TransportSocket } from '../connection/client-socket.ts'
import { connectVerdict } from '../connection/connect-verdict.ts'
import { ConnectionFacts, plainAddress } from '../connection/connection-facts.ts'
import { type EdgeErrorCode, TOO_SLOW } from '../edge-error.ts'
import { ExchangeTraffic } from '../exchange-traffic.ts'
import type { IngressContext } from '../ingress-context.ts'
import { SplicedVisitor } from './spliced-visitor.ts'
import { nextTcpConnectionState, type TcpConnectionState } from './tcp-connection-state.ts'

/** What a connection takes while it waits for a device: nothing of it is read. */
const WAITING_BYTES = 2_048
/** How often its device may be lost before there is a stream. */
const MAX_LOSSES = 4

const ROUTING: TcpConnectionState = { name: 'routing' }
const OVER: TcpConnectionState = { name: 'over' }

export interface TcpConnectionOptions {
  /** Paused, and half-open when its peer has ended. */
  readonly socket: TransportSocket
  /** What it takes in memory while it waits; little where nothing was read of it. */
  readonly waitingBytes?: number
  readonly context: IngressContext
  /** Who has the address that the visitor came to; `network` is the visitor's. */
  readonly find: (network: string) => NameState | undefined
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
 * - It is in one state of `tcp-connection-state.ts`, and only `#become` changes that; what does not
 *   belong to the state it comes in is late and does nothing.
 * - It holds at most one stream; on the way to `over` that is given up, and the socket is closed, or
 *   closes behind what was written.
 */
export class TcpConnection implements SharedConnection, StreamWaiter, HeldRequest {
  readonly address: string
  readonly network: string
  readonly bytes: number
  /** See `StreamClient`. */
  readonly facts: ConnectionFacts
  readonly #context: IngressContext
  readonly #find: TcpConnectionOptions['find']
  readonly #onClose: (connection: TcpConnection) => void
  readonly #openedAt: number
  readonly #visitor: SplicedVisitor
  readonly #beginTls: TcpConnectionOptions['endTls']
  readonly #traffic = new ExchangeTraffic()
  #account: RouteAccount | undefined
  #endpoint: AgentEndpoint | undefined
  #tlsEndedFor: AgentEndpoint | undefined
  #state: TcpConnectionState = ROUTING
  #losses = 0
  #hasAnswered = false

  constructor({ socket, context, find, onClose, ...options }: TcpConnectionOptions) {
    this.bytes = WAITING_BYTES + (options.waitingBytes ?? 0)
    this.#context = context
    this.#find = find
    this.#onClose = onClose
    this.#openedAt = context.clock.now()
    const ip = plainAddress(socket.remoteAddress ?? '')
    this.address = formatListenAddress({ host: ip, port: socket.remotePort ?? 0 })
    this.network = networkOf(ip)
    this.facts = new ConnectionFacts(socket, this.#openedAt, context.addresses)
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
    if (hasPlace) this.#visitor.guard(() => this.#route())
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
      if (this.#state.name === 'parked') this.#leave(this.#state)
      this.#visitor.sweep(now, this.#state.name === 'over')
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

  /** See `HeldRequest`. */
  onNameChange(): void {
    this.#visitor.guard(() => {
      if (this.#state.name === 'parked') this.#leave(this.#state)
    })
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
    this.#losses += 1
    if (reason === 'saturated' || this.#losses > MAX_LOSSES) {
      this.#refuse(reason === 'saturated' ? 'ERR_GATEWAY_SATURATED' : 'ERR_NGROK_3210')
      return
    }
    // The session that was lost has still to withdraw its names.
    this.#become(ROUTING)
    setImmediate(() => this.#visitor.guard(() => this.#route()))
  }

  #route(): void {
    if (this.#state.name !== 'routing') return
    const found = ofSameAccount(this.#find(this.network), this.#account)
    this.#account = found
    if (found?.type === 'agent') {
      this.#judge(found)
    } else if (found?.type === 'away' && this.#context.routes.wait(found, this)) {
      this.#become({ name: 'parked', away: found })
    } else {
      this.#finish()
      this.abort()
    }
  }

  /** Looks again who has the address. */
  #leave({ away }: Extract<TcpConnectionState, { readonly name: 'parked' }>): void {
    this.#context.routes.cancel(away, this)
    this.#become(ROUTING)
    this.#route()
  }

  #judge(endpoint: AgentEndpoint): void {
    this.#endpoint = endpoint
    this.#traffic.move(endpoint.traffic)
    this.#visitor.claim.moveTo(endpoint.streams.buffers, this.#context.now)
    const state: TcpConnectionState = { name: 'judging', endpoint }
    this.#become(state)
    const outcome = connectVerdict(endpoint, this.facts, this.#endTls)
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

  #follow({ kind }: Outcome, endpoint: AgentEndpoint): void {
    // One that was lost may have a successor to which TLS is to be passed on: it is too late for that.
    const isAsAsked = !this.facts.tls || this.#tlsEndedFor === endpoint
    if (kind !== 'continue' || !isAsAsked) {
      this.#traffic.refuse(undefined)
      this.#finish()
      this.abort()
      return
    }
    this.#become({ name: 'dialling', endpoint })
    endpoint.streams.acquireFresh(this, this)
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
    if (state.name === 'parked') this.#context.routes.cancel(state.away, this)
    else if (state.name === 'dialling') state.endpoint.streams.cancel(this)
    if (state.name !== 'open') this.#finish()
  }

  #become(next: TcpConnectionState): void {
    this.#state = nextTcpConnectionState(this.#state, next)
  }
}
