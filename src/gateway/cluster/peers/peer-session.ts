import type { TLSSocket } from 'node:tls'
import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import { ErrorCode } from '../../../muxado/error-code.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE } from '../../../muxado/heartbeat.ts'
import { answer, readMessage } from '../../../muxado/rpc.ts'
import { acceptTyped, Session } from '../../../muxado/session.ts'
import type { Stream } from '../../../muxado/stream.ts'
import { VISITOR_STREAM_TYPE } from '../../streams/visitor-facts.ts'
import { agree, GreetingSchema, type PublicPorts, SPOKEN } from './greeting.ts'
import {
  ANSWER_LIMITS,
  GREETING_LIMITS,
  GREETING_STREAM_TYPE,
  HEARTBEAT_MS,
  LINK_LIMITS,
  MAX_UNREAD_BYTES,
  QUESTION_LIMITS,
  QUESTION_STREAM_TYPE,
  QUESTIONS_AT_ONCE,
} from './peer-protocol.ts'

/** Without a beat for so long the other node is gone, or paused. */
const SILENCE_MS = HEARTBEAT_MS.intervalMs + 2 * HEARTBEAT_MS.toleranceMs
/** Said to the other node, for its log. */
const UNSURE =
  'PostgreSQL cannot be asked for the nodes of the cluster; new links are refused until then'

export interface PeerSessionOptions {
  readonly socket: TLSSocket
  readonly nodeId: string
  readonly ports: PublicPorts
  /** Whether a node that has a certificate of the cluster is one of it still; see `PeerListener`. */
  readonly isKnown: (nodeId: string) => Promise<boolean | undefined>
  readonly onVisitor: (stream: Stream, origin: PeerSession) => void
  /** Answers calls of another node; undefined: no calls. */
  readonly onQuestion?: ((message: unknown) => Promise<object>) | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** A link of another node to here: its visitors come in by it, once versions are agreed on. */
export class PeerSession {
  readonly nodeId: string
  readonly #options: PeerSessionOptions
  readonly #log: Logger
  readonly #session: Session
  #isWelcome = false
  /** Questions that are not whole, or have no answer yet. */
  #asked = 0
  /** Bytes of answers that the other node has not read yet. */
  #unreadBytes = 0
  #heardAt: number

  constructor(options: PeerSessionOptions) {
    const { socket, nodeId, log, clock } = options
    this.nodeId = nodeId
    this.#options = options
    this.#log = log.child({ node: nodeId })
    this.#heardAt = clock.monotonic()
    this.#session = new Session(socket, {
      role: 'server',
      accept: acceptTyped((type, stream) => this.#accept(type, stream)),
      limits: LINK_LIMITS,
      log: this.#log,
    })
    void this.#watch()
    void this.#expectWelcome()
  }

  /** Whether it has greeted, and is a node of this cluster. */
  get isWelcome(): boolean {
    return this.#isWelcome
  }

  /** Resolves when it is over; never rejects. */
  get closed(): Promise<unknown> {
    return this.#session.closed
  }

  end(): Promise<void> {
    return this.#session.goAway(ErrorCode.none, 'the node is leaving')
  }

  /** Ends the session with its running requests. False if it was never accepted, or is already ending. */
  cutOff(): boolean {
    if (!this.#isWelcome) return false
    this.#isWelcome = false
    void this.end()
    return true
  }

  /** Ends it at once. */
  drop(reason: string): void {
    this.#isWelcome = false
    void this.#session.goAway(ErrorCode.none, reason)
    this.#options.socket.destroy()
  }

  #accept(type: number, stream: Stream): void {
    if (type === HEARTBEAT_STREAM_TYPE) {
      echoHeartbeat(stream, () => {
        this.#heardAt = this.#options.clock.monotonic()
      })
    } else if (type === GREETING_STREAM_TYPE) void this.#greet(stream)
    else if (type === VISITOR_STREAM_TYPE && this.#isWelcome) {
      this.#options.onVisitor(stream, this)
    } else if (type === QUESTION_STREAM_TYPE && this.#isWelcome && this.#options.onQuestion) {
      void this.#answer(stream, this.#options.onQuestion)
    } else stream.reset(ErrorCode.streamRefused)
  }

  async #greet(stream: Stream): Promise<void> {
    const { ports, clock, isKnown } = this.#options
    try {
      const message = await readMessage(stream, { ...GREETING_LIMITS, clock })
      const greeting = GreetingSchema.parse(message)
      const isOurs = await isKnown(this.nodeId)
      if (isOurs === undefined) {
        this.#log.debug('node must wait')
        await this.#session.goAway(ErrorCode.none, UNSURE)
        return
      }
      const welcome = isOurs
        ? agree({ versions: SPOKEN, ports }, greeting)
        : ({ refusal: 'stranger' } as const)
      this.#isWelcome = 'version' in welcome
      answer(stream, welcome)
      if ('refusal' in welcome) this.#log.warn({ refusal: welcome.refusal }, 'node refused')
    } catch (err) {
      this.#log.warn({ err }, 'a node sent an invalid greeting')
      await this.#session.goAway(ErrorCode.protocol, 'no greeting')
    }
  }

  async #answer(stream: Stream, onQuestion: (message: unknown) => Promise<object>): Promise<void> {
    try {
      const said = await this.#hear(stream, onQuestion)
      if (this.#unreadBytes > MAX_UNREAD_BYTES) throw new Error('the node does not read answers')
      if (!stream.isClosed) await this.#send(stream, said)
    } catch (err) {
      this.#log.warn({ err }, 'a node asked an unknown question')
      stream.reset(ErrorCode.streamCancelled)
    }
  }

  /** The caller waits no longer than this. Unread data is then dropped. */
  async #send(stream: Stream, said: object): Promise<void> {
    const over = new AbortController()
    const bytes = answer(stream, said, () => over.abort('over'))
    this.#unreadBytes += bytes
    await this.#options.clock.sleep(ANSWER_LIMITS.deadlineMs, over.signal).catch(() => {})
    this.#unreadBytes -= bytes
    stream.reset(ErrorCode.streamCancelled)
  }

  /** Limits count by link, so a node with too many calls takes no place from others. */
  async #hear(stream: Stream, onQuestion: (message: unknown) => Promise<object>): Promise<object> {
    if (this.#asked >= QUESTIONS_AT_ONCE) throw new Error('too many questions at once')
    this.#asked += 1
    try {
      const { clock } = this.#options
      return await onQuestion(await readMessage(stream, { ...QUESTION_LIMITS, clock }))
    } finally {
      this.#asked -= 1
    }
  }

  /** A node that disappears leaves open streams. They are closed when heartbeats are missing. */
  async #watch(): Promise<void> {
    const { clock } = this.#options
    const over = new AbortController()
    void this.#session.closed.then(() => over.abort())
    for (;;) {
      const waitMs = this.#heardAt + SILENCE_MS - clock.monotonic()
      if (over.signal.aborted) return
      if (waitMs <= 0) break
      await clock.sleep(waitMs, over.signal).catch(() => {})
    }
    this.#log.warn('no heartbeat from a node')
    this.drop('no heartbeat')
  }

  /** A certificate of the cluster is no welcome: its node may have been forgotten. */
  async #expectWelcome(): Promise<void> {
    const { clock } = this.#options
    const over = new AbortController()
    void this.#session.closed.then(() => over.abort())
    await clock.sleep(GREETING_LIMITS.deadlineMs, over.signal).catch(() => {})
    if (over.signal.aborted || this.#isWelcome) return
    this.#log.debug('no greeting from a node')
    this.drop('no greeting')
  }
}
