import type { LookupFunction, Socket } from 'node:net'
import type { Clock } from '../../base/clock.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import { encodeProxyProtocol, type ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { UpstreamTimings } from '../timings.ts'
import { authorityOf, type ForwardTarget } from './forward-target.ts'
import { connectUpstream, HandshakeError } from './upstream-connection.ts'
import { DEFAULT_UPSTREAM, type TlsMinVersion, type UpstreamSettings } from './upstream-options.ts'
import { type HttpQuestion, requestStatus } from './upstream-request.ts'
import { nextUpstream, type Upstream, type UpstreamEvent } from './upstream-state.ts'

/** How a service is asked: a bare connection, or a request for a path. */
interface UpstreamQuestion {
  readonly target: ForwardTarget
  /** Undefined: whether it takes a connection. */
  readonly http: HttpQuestion | undefined
  /** Whether it speaks HTTP/2, asked for a path or not. */
  readonly http2?: boolean | undefined
  /** It wants to be told first whose connection it is. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  readonly withinMs: number
  /** Whether the certificate of a service that speaks TLS has to be trusted; it has to, unless given. */
  readonly verifyTls?: boolean | undefined
  readonly tlsMinVersion?: TlsMinVersion | undefined
  readonly lookup: LookupFunction | undefined
}

/** `exhausted`: it could not be asked, because this process has no descriptors or memory left. */
export type UpstreamAnswer = UpstreamEvent | 'exhausted'

const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS'])
/** A path that is asked for by the owner's wish has to answer below. */
const FIRST_FAILING_STATUS = 500
const NEVER = new AbortController().signal

/** Asks once; never throws. */
export function askUpstream(question: UpstreamQuestion): Promise<UpstreamAnswer> {
  return abortedAfter(question.withinMs, NEVER, (signal) => ask(question, signal))
}

async function ask(question: UpstreamQuestion, signal: AbortSignal): Promise<UpstreamAnswer> {
  const { target, http, verifyTls = true, tlsMinVersion, lookup } = question
  const { proxyProtocol: version } = question
  const http2 = http?.http2 ?? question.http2
  // Nobody's connection: the service has to take it, and to count nobody for it.
  const preface = version && encodeProxyProtocol(version, undefined)
  try {
    const wish = { lookup, verifyTls, tlsMinVersion, http2, preface, signal }
    const socket = await connectUpstream(target, wish)
    signal.addEventListener('abort', () => socket.destroy())
    const authority = authorityOf(target)
    const answer = await (http ? askHttp(socket, { ...http, authority }) : taken(socket))
    socket.destroy()
    return answer === 'garbled' && signal.aborted ? 'hung' : answer
  } catch (error) {
    return failureOf(error as Error, { signal, isHttp: http !== undefined })
  }
}

/** Ends it behind what was written, if there is anything. */
function taken(socket: Socket): Promise<UpstreamAnswer> {
  return new Promise((resolve) => {
    const settle = () => resolve('connected')
    socket.once('finish', settle).once('close', settle).end()
  })
}

async function askHttp(socket: Socket, http: HttpQuestion): Promise<UpstreamAnswer> {
  try {
    const status = await requestStatus(socket, http)
    return http.method === 'GET' && status >= FIRST_FAILING_STATUS ? 'failed' : 'answered'
  } catch {
    return 'garbled'
  }
}

function failureOf(
  error: NodeJS.ErrnoException,
  { signal, isHttp }: { readonly signal: AbortSignal; readonly isHttp: boolean },
): UpstreamAnswer {
  if (error instanceof HandshakeError) {
    if (error.kind !== 'other') return error.kind
    return signal.aborted ? 'hung' : 'garbled'
  }
  const { code = '' } = error
  if (EXHAUSTED.has(code)) return 'exhausted'
  // A port without a listener refuses; only a connection that was taken is reset.
  if (code === 'ECONNRESET') return isHttp ? 'garbled' : 'connected'
  return 'failed'
}

export type { Upstream } from './upstream-state.ts'

/** Failures in a row that make a service down; one success makes it up. */
const FAILURES_TO_DOWN = 2
const CHECKS_AT_ONCE = 16
/** The second failure, which decides, comes after a fifth of the pause. */
const RETRY_PARTS = 5
/** Services that are due within a tenth of the pause are tried together: one wake-up for all. */
const ROUND_PARTS = 10
/** For as many pauses what visitors got is believed before the service is asked itself. */
const BELIEVED_PAUSES = 3

export interface UpstreamCheckOptions {
  readonly timings: UpstreamTimings
  readonly clock: Clock
  /** How names of a target are looked up; unset: as the system does it. */
  readonly lookupFor?: (target: ForwardTarget) => LookupFunction | undefined
  readonly ask?: typeof askUpstream
  /** Called after the state of a service changed. */
  readonly onChange: () => void
  /** This process has no descriptors or memory left to ask with. */
  readonly onExhausted?: () => void
}

/** In which way a service is asked. */
type UpstreamQuestions = Pick<
  UpstreamSettings,
  'health' | 'http2' | 'proxy_protocol' | 'verify_tls' | 'tls_min_version'
>

interface Watched {
  readonly target: ForwardTarget
  readonly how: UpstreamQuestions
  watchers: number
  failures: number
  state: Upstream
  /** Grows while it is up. */
  pauseMs: number
  /** Monotonic. */
  dueAt: number
  isUnderWay: boolean
}

/**
 * Tries the local services of all tunnels, each service once however many use it, and less and less
 * often while it is well. What visitors get counts for more than a connection that it takes.
 */
export class UpstreamCheck {
  readonly #options: UpstreamCheckOptions
  readonly #watched = new Map<string, Watched>()
  readonly #semaphore = new Semaphore(CHECKS_AT_ONCE)
  readonly #wakeUp = new AutoResetEvent()
  #isStopped = false
  #running: Promise<void> | undefined

  constructor(options: UpstreamCheckOptions) {
    this.#options = options
  }

  start(): void {
    this.#running ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    this.#wakeUp.set()
    await this.#running
  }

  /**
   * Adds a target that is asked in this way and tries it at once; returns how to let go of it. The key
   * stands for all of that.
   */
  watch(key: string, target: ForwardTarget, how: UpstreamQuestions = DEFAULT_UPSTREAM): () => void {
    const { clock, timings } = this.#options
    const watched: Watched = this.#watched.get(key) ?? {
      target,
      how,
      watchers: 0,
      failures: 0,
      state: 'unknown',
      pauseMs: timings.intervalMs,
      dueAt: how.health === 'off' ? Number.POSITIVE_INFINITY : clock.monotonic(),
      isUnderWay: false,
    }
    watched.watchers += 1
    if (!this.#watched.has(key)) {
      this.#watched.set(key, watched)
      this.#wakeUp.set()
    }
    return () => {
      watched.watchers -= 1
      if (watched.watchers === 0) this.#watched.delete(key)
    }
  }

  stateOf(key: string): Upstream {
    return this.#watched.get(key)?.state ?? 'unknown'
  }

  /** What visitors got of a service; `failed`: it takes no connection, which is tried at once. */
  told(key: string, event: UpstreamEvent): void {
    const { clock, timings } = this.#options
    const watched = this.#watched.get(key)
    if (!watched || this.#isStopped) return
    const now = clock.monotonic()
    const isAsked = watched.how.health !== 'off'
    if (event === 'failed' && isAsked) {
      watched.dueAt = now
    } else {
      watched.pauseMs = timings.intervalMs
      // A busy service refuses our connection as well, and would be called down.
      const pauses = event === 'crowded' ? 2 * BELIEVED_PAUSES : BELIEVED_PAUSES
      if (isAsked) watched.dueAt = now + timings.intervalMs * pauses
      this.#become(watched, event)
    }
    this.#wakeUp.set()
  }

  async #run(): Promise<void> {
    const { clock, timings } = this.#options
    const roundMs = timings.intervalMs / ROUND_PARTS
    while (!this.#isStopped) {
      const now = clock.monotonic()
      for (const watched of this.#watched.values()) {
        if (watched.dueAt <= now && !watched.isUnderWay) void this.#check(watched)
      }
      const idle = [...this.#watched.values()].filter(({ isUnderWay }) => !isUnderWay)
      const dueAt = Math.min(...idle.map((watched) => watched.dueAt))
      const waitMs = Math.max(roundMs, dueAt - now)
      await this.#wakeUp.wait(clock, Number.isFinite(waitMs) ? waitMs : undefined)
    }
  }

  async #check(watched: Watched): Promise<void> {
    const { timings, clock, ask = askUpstream, lookupFor, onExhausted } = this.#options
    const { target, how } = watched
    watched.isUnderWay = true
    const answer = await this.#semaphore.run(async () => {
      if (this.#isStopped) return undefined
      const http = this.#questionFor(watched)
      const lookup = lookupFor?.(target)
      return ask({
        target,
        http,
        http2: how.http2,
        proxyProtocol: how.proxy_protocol,
        verifyTls: how.verify_tls,
        tlsMinVersion: how.tls_min_version,
        withinMs: timings.connectMs,
        lookup,
      })
    })
    watched.isUnderWay = false
    if (this.#isStopped || answer === undefined) return
    if (answer === 'exhausted') onExhausted?.()
    else this.#note(watched, answer)
    watched.dueAt = clock.monotonic() + this.#pauseOf(watched)
    this.#wakeUp.set()
  }

  /** A service that visitors got nothing sensible from is asked as they do. */
  #questionFor({ how: { health, http2 }, state }: Watched): UpstreamQuestion['http'] {
    if (health.startsWith('/')) return { method: 'GET', path: health, http2 }
    const isDoubted = state === 'slow' || state === 'garbage' || state === 'busy'
    return isDoubted ? { method: 'HEAD', path: '/', http2 } : undefined
  }

  #note(watched: Watched, event: UpstreamEvent): void {
    watched.failures = event === 'failed' ? watched.failures + 1 : 0
    if (event === 'failed' && watched.failures < FAILURES_TO_DOWN) return
    this.#become(watched, event)
  }

  #become(watched: Watched, event: UpstreamEvent): void {
    const before = watched.state
    watched.state = nextUpstream(before, event)
    if (watched.state !== before) this.#options.onChange()
  }

  #pauseOf(watched: Watched): number {
    const { intervalMs, maxIntervalMs } = this.#options.timings
    if (watched.failures > 0 && watched.state !== 'down') return intervalMs / RETRY_PARTS
    const pauseMs = watched.pauseMs
    const isUp = watched.state === 'up'
    watched.pauseMs = isUp ? Math.min(pauseMs * 2, maxIntervalMs) : intervalMs
    return isUp ? pauseMs : intervalMs
  }
}
