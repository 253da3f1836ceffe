import type { LookupFunction, Socket } from 'node:net'
import type { Clock } from '../../base/clock.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import { encodeProxyProtocol, type ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { UpstreamTimings } from '../timings.ts'
import { authorityOf, type ForwardTarget } from './forward-target.ts'
import { connectUpstream, HandshakeError, UnresolvedError } from './upstream-connection.ts'
import { DEFAULT_UPSTREAM, type TlsMinVersion, type UpstreamSettings } from './upstream-options.ts'
import { type HttpQuestion, requestStatus } from './upstream-request.ts'
import {
  nextUpstream,
  type Upstream,
  type UpstreamEvent,
  type UpstreamFlaw,
} from './upstream-state.ts'

/** A check of a service: a plain connection, or a request for a path. */
interface UpstreamQuestion {
  readonly target: ForwardTarget
  /** Undefined: only checks whether it accepts a connection. */
  readonly http: HttpQuestion | undefined
  /** Whether the service speaks HTTP/2, also for checks without a path. */
  readonly http2?: boolean | undefined
  /** Set if the service expects a PROXY header. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  readonly withinMs: number
  /** Whether the certificate of a TLS service has to be trusted. Default: yes. */
  readonly verifyTls?: boolean | undefined
  readonly tlsMinVersion?: TlsMinVersion | undefined
  readonly lookup: LookupFunction | undefined
}

/** `exhausted`: the check failed because this process has no file descriptors or memory left. */
export type UpstreamAnswer = UpstreamEvent | UpstreamFlaw | 'exhausted'

const TLS_MS = 3_000

/** Whether a service that sends no valid HTTP completes a TLS handshake. Never throws. */
export function speaksTls(target: ForwardTarget, lookup?: LookupFunction): Promise<boolean> {
  if (!('host' in target) || target.isSecure) return Promise.resolve(false)
  const secure: ForwardTarget = { ...target, isSecure: true }
  return abortedAfter(TLS_MS, NEVER, async (signal) => {
    const wish = { lookup, verifyTls: false, tlsMinVersion: '1.0', signal } as const
    const socket = await connectUpstream(secure, wish)
    socket.destroy()
    return true
  }).catch(() => false)
}

const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS'])
/** A health check path of the tunnel's owner has to return a lower status. */
const FIRST_FAILING_STATUS = 500
const NEVER = new AbortController().signal

/** Checks a service once. Never throws. */
export function askUpstream(question: UpstreamQuestion): Promise<UpstreamAnswer> {
  return abortedAfter(question.withinMs, NEVER, (signal) => ask(question, signal))
}

async function ask(question: UpstreamQuestion, signal: AbortSignal): Promise<UpstreamAnswer> {
  const { target, http, verifyTls = true, tlsMinVersion, lookup } = question
  const { proxyProtocol: version } = question
  const http2 = http?.http2 ?? question.http2
  // A header without addresses: the service has to accept it, and does not count a client for it.
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

/** Closes the connection after the written data, if any. */
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
    if (error.otherNames !== undefined) return 'other-name'
    if (error.kind !== 'other') return error.kind
    return signal.aborted ? 'hung' : 'garbled'
  }
  const { code = '' } = error
  if (EXHAUSTED.has(code)) return 'exhausted'
  if (error instanceof UnresolvedError) return 'unresolved'
  // A port without a listener refuses. Only an accepted connection is reset.
  if (code === 'ECONNRESET') return isHttp ? 'garbled' : 'connected'
  return 'failed'
}

export type { Upstream } from './upstream-state.ts'

/** The event that each flaw is for the state of a service. */
const FLAWS: Readonly<Record<UpstreamFlaw, UpstreamEvent>> = {
  unresolved: 'failed',
  'other-name': 'untrusted',
}
const isFlaw = (answer: string): answer is UpstreamFlaw => Object.hasOwn(FLAWS, answer)

/** Consecutive failures until a service is down. One success makes it up. */
const FAILURES_TO_DOWN = 2
const CHECKS_AT_ONCE = 16
/** The second failure decides, so it follows after a fifth of the interval. */
const RETRY_PARTS = 5
/** Services that are due within a tenth of the interval are checked together, with one wake-up. */
const ROUND_PARTS = 10
/** A report about visitors replaces the checks for this number of intervals. */
const BELIEVED_PAUSES = 3

export interface UpstreamCheckOptions {
  readonly timings: UpstreamTimings
  readonly clock: Clock
  /** Returns the lookup function for a target. Default: the system's. */
  readonly lookupFor?: (target: ForwardTarget) => LookupFunction | undefined
  readonly ask?: typeof askUpstream
  /** Called after the state of a service changed. */
  readonly onChange: () => void
  /** Called if this process has no file descriptors or memory left for checks. */
  readonly onExhausted?: () => void
}

/** States in which an accepted connection proves nothing. */
const DOUBTED: ReadonlySet<Upstream> = new Set(['slow', 'garbage', 'wrong_protocol', 'busy'])

/** Options for the check of a service. */
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
  /** Of the last check. */
  flaw: UpstreamFlaw | undefined
  /** Grows while the service is up. */
  pauseMs: number
  /** Monotonic. */
  dueAt: number
  /** Monotonic. From this time on, `refresh()` makes the check due. */
  staleAt: number
  isUnderWay: boolean
}

/**
 * Checks the local services of all tunnels. A service used by several tunnels is checked once. While it is
 * up, checks become less frequent. Reports about visitors have priority over accepted connections.
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
   * Adds a target with its check options, and checks it at once. The key identifies both. Returns a function
   * that ends the watch.
   */
  watch(key: string, target: ForwardTarget, how: UpstreamQuestions = DEFAULT_UPSTREAM): () => void {
    const { clock, timings } = this.#options
    const watched: Watched = this.#watched.get(key) ?? {
      target,
      how,
      watchers: 0,
      failures: 0,
      state: 'unknown',
      flaw: undefined,
      pauseMs: timings.intervalMs,
      dueAt: how.health === 'off' ? Number.POSITIVE_INFINITY : clock.monotonic(),
      staleAt: Number.POSITIVE_INFINITY,
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

  /** What the last check says beside the state. */
  flawOf(key: string): UpstreamFlaw | undefined {
    return this.#watched.get(key)?.flaw
  }

  /**
   * Makes services due whose last check began more than an interval ago. Call this when somebody asks for the
   * states. It does not wait for the checks.
   */
  refresh(): void {
    const { clock, timings } = this.#options
    const now = clock.monotonic()
    for (const watched of this.#watched.values()) {
      if (now < watched.staleAt || watched.dueAt <= now) continue
      watched.dueAt = now
      // An additional check must not make later checks less frequent.
      watched.pauseMs = Math.max(timings.intervalMs, watched.pauseMs / 2)
      this.#wakeUp.set()
    }
  }

  /**
   * Handles a report about visitors of a service. `failed`: the service refused their connections, so it is
   * checked at once, and one more failure decides.
   */
  told(key: string, event: UpstreamEvent): void {
    const { clock, timings } = this.#options
    const watched = this.#watched.get(key)
    if (!watched || this.#isStopped) return
    const now = clock.monotonic()
    const isAsked = watched.how.health !== 'off'
    if (event === 'failed' && isAsked) {
      watched.dueAt = now
      watched.failures = Math.max(watched.failures, FAILURES_TO_DOWN - 1)
    } else {
      watched.pauseMs = timings.intervalMs
      // A busy service refuses the check too, and would be reported as down.
      const pauses = event === 'crowded' ? 2 * BELIEVED_PAUSES : BELIEVED_PAUSES
      if (isAsked) {
        watched.dueAt = now + timings.intervalMs * pauses
        watched.staleAt = event === 'answered' ? now + timings.intervalMs : watched.dueAt
      }
      this.#become(watched, event)
      if (watched.state === 'garbage') void this.#askForTls(watched)
    }
    this.#wakeUp.set()
  }

  async #askForTls(watched: Watched): Promise<void> {
    const { lookupFor } = this.#options
    const isTls = await speaksTls(watched.target, lookupFor?.(watched.target))
    if (isTls && watched.state === 'garbage' && !this.#isStopped) {
      this.#become(watched, 'speaks-tls')
    }
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
    watched.staleAt = clock.monotonic() + timings.intervalMs
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

  /** Returns the request for a check. If visitors did not get valid answers, it is like theirs. */
  #questionFor({ how: { health, http2 }, state }: Watched): UpstreamQuestion['http'] {
    if (health.startsWith('/')) return { method: 'GET', path: health, http2 }
    return DOUBTED.has(state) ? { method: 'HEAD', path: '/', http2 } : undefined
  }

  #note(watched: Watched, answer: UpstreamEvent | UpstreamFlaw): void {
    const [event, flaw] = isFlaw(answer) ? [FLAWS[answer], answer] : [answer, undefined]
    const hasNewFlaw = watched.flaw !== flaw
    watched.flaw = flaw
    if (hasNewFlaw && watched.state !== 'unknown') this.#options.onChange()
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
