import type { TLSSocket } from 'node:tls'
import type { ConnectionStage, SharedConnection } from '../../../base/limit/connection-shares.ts'
import { networkOf } from '../../../base/limit/network.ts'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { Outcome } from '../../../policy/exchange/outcome.ts'
import type { EndTls, TlsTerms } from '../../../policy/exchange/tls-terms.ts'
import type { HeldRequest } from '../../endpoints/away-name.ts'
import type { AgentEndpoint } from '../../endpoints/endpoint.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import { BufferClaim, type BufferHolder } from '../../streams/buffer-account.ts'
import type { NoStreamReason, Pace, ProxyStream, StreamWaiter } from '../../streams/proxy-stream.ts'
import type { TransportSocket } from '../connection/client-socket.ts'
import { connectVerdict } from '../connection/connect-verdict.ts'
import { ConnectionFacts, plainAddress } from '../connection/connection-facts.ts'
import { type EdgeErrorCode, TOO_SLOW } from '../edge-error.ts'
import { ExchangeTraffic } from '../exchange-traffic.ts'
import type { IngressContext } from '../ingress-context.ts'
import { RateMeter } from '../rate-meter.ts'
import { Upgrade } from '../upgrade.ts'
import { nextTcpConnectionState, type TcpConnectionState } from './tcp-connection-state.ts'
import { VisitorSocket } from './visitor-socket.ts'

/** What a connection takes while it waits for a device: nothing of it is read. */
const WAITING_BYTES = 2_048
/** How often its device may be lost before there is a stream. */
const MAX_LOSSES = 4
/** A peer that is gone without a word is noticed by the system, after this and some tries. */
const KEEP_ALIVE_MS = 60_000

/** Without a byte for so long, others need its place more, where there is none left. */
const QUIET_MS = 60_000

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
export class TcpConnection implements SharedConnection, BufferHolder, StreamWaiter, HeldRequest {
  readonly address: string
  readonly network: string
  readonly bytes: number
  /** See `StreamClient`. */
  readonly facts: ConnectionFacts
  readonly #context: IngressContext
  readonly #find: TcpConnectionOptions['find']
  readonly #onClose: (connection: TcpConnection) => void
  readonly #openedAt: number
  readonly #visitor: VisitorSocket
  readonly #beginTls: TcpConnectionOptions['endTls']
  readonly #claim: BufferClaim
  readonly #traffic = new ExchangeTraffic()
  readonly #meter = new RateMeter()
  #endpoint: AgentEndpoint | undefined
  #tlsEndedFor: AgentEndpoint | undefined
  #state: TcpConnectionState = ROUTING
  #moved = 0
  #movedAt: number
  #losses = 0
  #hasAnswered = false

  constructor({ socket, context, find, onClose, ...options }: TcpConnectionOptions) {
    this.bytes = WAITING_BYTES + (options.waitingBytes ?? 0)
    this.#context = context
    this.#find = find
    this.#onClose = onClose
    this.#openedAt = context.clock.now()
    this.#movedAt = context.now
    const ip = plainAddress(socket.remoteAddress ?? '')
    this.address = formatListenAddress({ host: ip, port: socket.remotePort ?? 0 })
    this.network = networkOf(ip)
    this.facts = new ConnectionFacts(socket, this.#openedAt, context.addresses)
    this.#beginTls = options.endTls
    this.#visitor = new VisitorSocket({
      socket,
      context,
      onDrain: () => this.#guard(() => this.#onDrain()),
      onClose: () => this.#guard(() => this.#onSocketClose()),
      onHeld: () => this.#countHeld(),
    })
    this.#claim = new BufferClaim(this, context.buffers)
  }

  /** Finds the endpoint; without a place it only closes. */
  start(hasPlace = true): void {
    const { socket } = this.#visitor
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    this.#visitor.listen()
    if (hasPlace) this.#guard(() => this.#route())
    else this.abort()
  }

  /** One that has moved nothing for a while gives its place to others: there is a table for all. */
  get stage(): ConnectionStage {
    if (this.#state.name !== 'open') return 'awaited'
    return this.#context.now - this.#movedAt < QUIET_MS ? 'busy' : 'awaited'
  }

  get idleSince(): number {
    return this.#movedAt
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
    this.#guard(() => {
      const state = this.#state
      this.#countHeld()
      if (state.name === 'parked') this.#leave(state)
      else if (state.name === 'over') this.#visitor.sweepEnded(now)
      else if (state.name === 'open') {
        if (this.movedBytes !== this.#moved) this.#movedAt = now
        this.#moved = this.movedBytes
        this.#meter.look(this.#moved, this.#visitor.heldBytes, now)
        state.splice.sweep(now)
      }
    })
  }

  /** See `BufferHolder`. */
  get heldBytes(): number {
    const state = this.#state
    const stuck = state.name === 'open' ? state.splice.heldBytes : 0
    return this.#visitor.heldBytes + stuck
  }

  /** See `BufferHolder`. */
  get movedBytes(): number {
    const state = this.#state
    const received = state.name === 'open' ? state.splice.receivedBytes : 0
    return this.#visitor.takenBytes + received
  }

  /** See `BufferHolder`. */
  onOverBudget(): void {
    this.#traffic.refuse(TOO_SLOW)
    this.abort()
  }

  /** See `StreamWaiter`. */
  get pace(): Pace {
    return { rate: this.#meter.rate, isHeldUp: this.#visitor.heldBytes > 0 }
  }

  /** See `StreamWaiter`. */
  evict(): void {
    this.#traffic.refuse(TOO_SLOW)
    this.abort()
  }

  /** See `HeldRequest`. */
  onNameChange(): void {
    this.#guard(() => {
      if (this.#state.name === 'parked') this.#leave(this.#state)
    })
  }

  /** See `StreamWaiter`. */
  onStream(stream: ProxyStream): void {
    const { clock, limits } = this.#context
    stream.markSwitched()
    const splice = new Upgrade({
      client: {
        pause: () => this.#visitor.socket.pause(),
        resume: () => this.#visitor.socket.resume(),
        write: (chunk) => this.#write(chunk),
        end: () => this.#onServiceEnd(),
        abort: () => this.abort(),
      },
      stream,
      traffic: this.#traffic,
      limits: { ...limits, silenceMs: limits.tcpIdleMs },
      onOver: (bytesIn, bytesOut) => {
        const { address: client } = this
        const ms = clock.now() - this.#openedAt
        const endpoint = this.#endpoint?.id
        this.#context.log.debug({ client, endpoint, bytesIn, bytesOut, ms }, 'connection')
        if (!this.#hasAnswered) this.#noteOutcome('abandoned')
        this.#finish()
      },
    })
    this.#become({ name: 'open', splice })
    const { socket } = this.#visitor
    socket.on('data', (chunk: Buffer) =>
      this.#guard(() => {
        splice.onClientData(chunk)
        this.#countHeld()
      }),
    )
    socket.on('end', () => this.#guard(() => splice.onClientEnd()))
    socket.resume()
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
    setImmediate(() => this.#guard(() => this.#route()))
  }

  #route(): void {
    if (this.#state.name !== 'routing') return
    const found = this.#find(this.network)
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
    this.#claim.moveTo(endpoint.streams.buffers, this.#context.now)
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
        this.#guard(() => {
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
    if (!this.#hasAnswered && this.#visitor.socket.readableEnded) {
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

  #onDrain(): void {
    this.#visitor.flush()
    this.#countHeld()
    const state = this.#state
    if (!this.#visitor.socket.writableNeedDrain && state.name === 'open')
      state.splice.onClientRoom()
  }

  #onSocketClose(): void {
    const state = this.#state
    this.#claim.close()
    this.#onClose(this)
    if (state.name === 'parked') this.#context.routes.cancel(state.away, this)
    else if (state.name === 'dialling') state.endpoint.streams.cancel(this)
    if (state.name === 'open') state.splice.onClientClose()
    else this.#finish()
  }

  #countHeld(): void {
    this.#claim.update(this.#context.now)
  }

  #become(next: TcpConnectionState): void {
    this.#state = nextTcpConnectionState(this.#state, next)
  }

  #guard(step: () => void): void {
    try {
      step()
    } catch (err) {
      this.#context.log.error({ err }, 'connection failed')
      this.abort()
    }
  }
}
