import { connect, type TLSSocket } from 'node:tls'
import { Backoff } from '../../../base/backoff.ts'
import type { Clock } from '../../../base/clock.ts'
import { withDeadline } from '../../../base/deadline.ts'
import { formatListenAddress, type ListenAddress } from '../../../base/listen-address.ts'
import type { Logger } from '../../../base/logger.ts'
import { onAbort } from '../../../base/on-abort.ts'
import { ErrorCode } from '../../../muxado/error-code.ts'
import { Heartbeat } from '../../../muxado/heartbeat.ts'
import { call } from '../../../muxado/rpc.ts'
import { Session } from '../../../muxado/session.ts'
import type { BufferAccount } from '../../streams/buffer-account.ts'
import { StreamSlots } from '../../streams/stream-slots.ts'
import {
  LINK_REFUSALS,
  type LinkRefusal,
  type PublicPorts,
  SPOKEN,
  WelcomeSchema,
} from './greeting.ts'
import { PEER_PROTOCOL, type PeerIdentity, peerOf, tlsOptions } from './peer-identity.ts'
import {
  GREETING_LIMITS,
  GREETING_STREAM_TYPE,
  HEARTBEAT_MS,
  LINK_LIMITS,
  LINK_SLOTS,
} from './peer-protocol.ts'

/** State of a link to another node, on the side that opens it. */
type PeerLinkState =
  /** TLS is being agreed on. */
  | { readonly name: 'connecting' }
  /** The node is authenticated; versions are being compared. */
  | { readonly name: 'greeting'; readonly session: Session }
  | {
      readonly name: 'up'
      readonly session: Session
      /** For its visitors. */
      readonly slots: StreamSlots
      readonly version: number
    }
  /** It is tried again in a while. */
  | {
      readonly name: 'down'
      /** For people; no address and no secret. */
      readonly reason: string
      readonly refusal: LinkRefusal | undefined
    }
  | { readonly name: 'closed' }

type Name = PeerLinkState['name']

const NEXT: Record<Name, readonly Name[]> = {
  connecting: ['greeting', 'down', 'closed'],
  greeting: ['up', 'down', 'closed'],
  up: ['down', 'closed'],
  down: ['connecting', 'closed'],
  closed: [],
}

/** The state that follows on another. Throws when it may not: only a mistake of ours can do that. */
export function nextPeerLinkState(state: PeerLinkState, next: PeerLinkState): PeerLinkState {
  if (NEXT[state.name].includes(next.name)) return next
  throw new Error(`a link cannot be ${next.name} after ${state.name}`)
}

const CONNECT_MS = 3_000
/** Neighbours are few and near: one attempt a second is no flood. */
const PAUSES = { baseMs: 100, capMs: 1_000, jitter: 0.5 } as const
/** A refused link is tried less often. */
const REFUSED_PAUSE_MS = 10_000

export interface PeerLinkOptions {
  readonly nodeId: string
  readonly address: ListenAddress
  readonly identity: () => PeerIdentity
  readonly ports: PublicPorts
  /** Buffered bytes of the whole gateway. */
  readonly buffers: BufferAccount
  /** It is up, or is so no longer. */
  onChange(link: PeerLink): void
  readonly log: Logger
  readonly clock: Clock
}

/**
 * The link to another node for visitors of this node: one muxado session over mTLS, opened again when it
 * ends. The other node has its own link in the other direction.
 *
 * INVARIANTS
 * - It is in one state of `PeerLinkState`, and only `#become` changes that.
 * - A session is `up` only with the node of its id, whatever its address says.
 * - A session without an answer for 3 s is closed with all its streams, and their users are informed.
 */
export class PeerLink {
  readonly nodeId: string
  readonly address: ListenAddress
  readonly #options: PeerLinkOptions
  readonly #log: Logger
  readonly #closing = new AbortController()
  readonly #backoff = new Backoff(PAUSES)
  #state: PeerLinkState = { name: 'connecting' }
  #latencyMs: number | undefined
  #wasUp = false
  /** Why there is no link, as the log has it. */
  #told: string | undefined
  #ended: Promise<void> | undefined

  constructor(options: PeerLinkOptions) {
    this.nodeId = options.nodeId
    this.address = options.address
    this.#options = options
    this.#log = options.log.child({ node: options.nodeId })
  }

  get state(): PeerLinkState {
    return this.#state
  }

  /** Session for new streams; undefined while the node is unreachable. */
  get session(): Session | undefined {
    return this.#state.name === 'up' ? this.#state.session : undefined
  }

  /** Whether the node is reachable, as far as is known. After a lost link, it may be gone. */
  get isReached(): boolean {
    return this.session !== undefined || !this.#wasUp
  }

  /** Stream slots shared by visitors; undefined while the node is unreachable. */
  get slots(): StreamSlots | undefined {
    return this.#state.name === 'up' ? this.#state.slots : undefined
  }

  /** Round trip of the last heartbeat; undefined while the node is unreachable. */
  get latencyMs(): number | undefined {
    return this.session && this.#latencyMs
  }

  /** Connects, and goes on doing so until `close()`. */
  open(): void {
    this.#ended ??= this.#run()
  }

  /** Ends the link with all running requests. */
  async close(): Promise<void> {
    const state = this.#state
    this.#closing.abort()
    if (state.name === 'closed') return
    this.#become({ name: 'closed' })
    if ('session' in state) await state.session.goAway(ErrorCode.none, 'the node is leaving')
    await this.#ended
  }

  async #run(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#closing
    while (!signal.aborted) {
      try {
        await this.#serve()
      } catch (err) {
        this.#down((err as Error).message)
      }
      const isRefused = this.#state.name === 'down' && this.#state.refusal !== undefined
      const pauseMs = isRefused ? REFUSED_PAUSE_MS : this.#backoff.next()
      await clock.sleep(pauseMs, signal).catch(() => {})
      if (!signal.aborted) this.#become({ name: 'connecting' })
    }
  }

  /** One connection, from its begin to its end. */
  async #serve(): Promise<void> {
    const { clock, buffers } = this.#options
    const socket = await this.#connect()
    if (this.#closing.signal.aborted) {
      socket.destroy()
      return
    }
    const session = new Session(socket, {
      role: 'client',
      accept: (stream) => stream.reset(ErrorCode.streamRefused),
      limits: LINK_LIMITS,
      log: this.#log,
    })
    this.#become({ name: 'greeting', session })
    try {
      const welcome = await this.#greet(session)
      if ('refusal' in welcome) {
        await session.goAway(ErrorCode.none, 'not needed')
        this.#down(LINK_REFUSALS[welcome.refusal], welcome.refusal)
        return
      }
      const heartbeat = new Heartbeat({
        session,
        clock,
        ...HEARTBEAT_MS,
        onLatency: (ms) => {
          this.#latencyMs = ms
          this.#backoff.reset()
        },
        // A GOAWAY alone is not enough: a paused node would not read it.
        onMissed: () => {
          void session.goAway(ErrorCode.none, 'no heartbeat')
          socket.destroy()
        },
      })
      heartbeat.start()
      if (this.#closing.signal.aborted) return
      const slots = new StreamSlots({ session, clock, limits: LINK_SLOTS, buffers })
      this.#become({ name: 'up', session, slots, version: welcome.version })
      this.#told = undefined
      this.#log.info('link to node is up')
      const { message } = await session.closed
      heartbeat.stop()
      this.#down(message)
    } finally {
      socket.destroy()
    }
  }

  async #connect(): Promise<TLSSocket> {
    const { identity, nodeId, address } = this.#options
    const socket = connect({
      ...tlsOptions(identity()),
      host: address.host,
      port: address.port,
      ALPNProtocols: [PEER_PROTOCOL],
      // A node has an id, and no host name.
      checkServerIdentity: () => undefined,
    })
    const secured = new Promise<void>((resolve, reject) => {
      socket.once('secureConnect', resolve)
      socket.on('error', reject)
      socket.on('close', () => reject(new Error('the connection was closed')))
    })
    socket.once(
      'close',
      onAbort(this.#closing.signal, () => socket.destroy()),
    )
    try {
      await withDeadline(secured, CONNECT_MS, 'connecting')
      if (peerOf(socket) !== nodeId) throw new Error('another node answered at this address')
      return socket
    } catch (error) {
      socket.destroy()
      throw error
    }
  }

  async #greet(session: Session) {
    const { ports, clock } = this.#options
    const greeting = { versions: SPOKEN, ports }
    const limits = { ...GREETING_LIMITS, clock }
    return WelcomeSchema.parse(await call(session, GREETING_STREAM_TYPE, greeting, limits))
  }

  #down(reason: string, refusal?: LinkRefusal): void {
    const { name } = this.#state
    if (name === 'closed') return
    const address = formatListenAddress(this.address)
    // A lost node is tried for days.
    const level = reason === this.#told ? 'debug' : 'warn'
    this.#told = reason
    this.#log[level]({ address, reason, was: name }, 'link to node is down')
    this.#become({ name: 'down', reason, refusal })
  }

  #become(next: PeerLinkState): void {
    const before = this.#state
    if (before.name === 'closed') return
    this.#state = nextPeerLinkState(before, next)
    this.#wasUp ||= next.name === 'up'
    if (before.name === 'up') before.slots.close()
    if ((before.name === 'up') !== (next.name === 'up')) this.#options.onChange(this)
  }
}
