import { randomBytes } from 'node:crypto'
import { AutoResetEvent } from '../../base/auto-reset-event.ts'
import type { Clock } from '../../base/clock.ts'
import { DeadlineError } from '../../base/deadline.ts'
import type { Logger } from '../../base/logger.ts'
import { connectionProblem, silenceProblem } from '../connection-problem.ts'
import { networkProblem, type Problem, saturatedProblem } from '../problem.ts'
import type { ProbeTimings } from '../timings.ts'
import type { PublicAnswer, PublicRequest } from './public-request.ts'

/** Where the agent's API answers the probe that comes back through the public domain. */
export const PROBE_PATH = '/.well-known/device-agent-probe'

/** What a gateway answers that has no stream of the device left; it says so within 8 s. */
const SATURATED = 'ERR_GATEWAY_SATURATED'

/** Failures in a row after which a new link is tried. */
const FAILURES_TO_REBUILD = 2
/** When a new link did not help, the next try waits for twice as many failures, up to this many. */
const MAX_FAILURES_TO_REBUILD = 64

type Within = Pick<PublicRequest, 'deadlineMs' | 'signal'>

export interface SelfProbeOptions {
  /** The agent's public URL while its own endpoint is online. */
  readonly url: () => string | undefined
  /** Asks a public URL as a stranger would. */
  readonly request: (url: URL, within: Within) => Promise<PublicAnswer>
  readonly timings: ProbeTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** After each probe; a problem when the agent did not reach itself. */
  readonly onResult: (problem: Problem | undefined) => void
  /** A new link may help. */
  readonly onRebuild: (problem: Problem) => void
}

/**
 * Fetches a nonce through the agent's own public domain, again and again: a link that is up and an
 * endpoint that is bound do not prove that traffic arrives.
 */
export class SelfProbe {
  readonly #options: SelfProbeOptions
  readonly #wakeUp = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  #expected: { readonly nonce: string; readonly answer: string } | undefined
  #failures = 0
  #failuresToRebuild = FAILURES_TO_REBUILD
  #problem: Problem | undefined
  #lastProbeAt: number | undefined
  #clockSkewMs: number | undefined

  constructor(options: SelfProbeOptions) {
    this.#options = options
  }

  get reachable(): 'yes' | 'no' | 'unknown' {
    if (this.#lastProbeAt === undefined) return 'unknown'
    return this.#problem ? 'no' : 'yes'
  }

  /** Why the last probe did not come through. */
  get problem(): Problem | undefined {
    return this.#problem
  }

  get lastProbeAt(): number | undefined {
    return this.#lastProbeAt
  }

  /** Our wall clock minus the service's, as its last answer showed; to the second. */
  get clockSkewMs(): number | undefined {
    return this.#clockSkewMs
  }

  start(): void {
    this.#running ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the probe is stopping'))
    this.#wakeUp.set()
    await this.#running
  }

  /** Probes now: the endpoint came online. */
  kick(): void {
    this.#wakeUp.set()
  }

  /** Nothing is known any more: there is no endpoint that could be reached. */
  forget(): void {
    if (this.#lastProbeAt === undefined) return
    this.#lastProbeAt = undefined
    this.#problem = undefined
    this.#options.onResult(undefined)
  }

  /** The answer to a nonce that this process has just sent; only that. */
  answer(nonce: string): string | undefined {
    return this.#expected?.nonce === nonce ? this.#expected.answer : undefined
  }

  async #run(): Promise<void> {
    const { clock, random = Math.random, timings } = this.#options
    while (!this.#stopping.signal.aborted) {
      const url = this.#options.url()
      if (url === undefined) {
        await this.#wakeUp.wait()
        continue
      }
      await this.#probe(url)
      const pauseMs = this.#problem ? timings.retryMs : timings.intervalMs
      // Jitter, so that the probes of a fleet do not fall into step.
      const jitteredMs = pauseMs * (0.75 + random() / 2)
      await this.#wakeUp.wait(clock, Number.isFinite(jitteredMs) ? jitteredMs : undefined)
    }
  }

  async #probe(url: string): Promise<void> {
    const { clock, log, onResult, onRebuild } = this.#options
    const problem = await this.#fetchNonce(url)
    if (this.#stopping.signal.aborted || this.#options.url() !== url) return
    this.#lastProbeAt = clock.now()
    if (problem && !this.#problem) log.warn({ detail: problem.detail }, 'probe failed')
    if (!problem && this.#problem) log.info('probe came through again')
    this.#problem = problem
    // Who is told that the device is busy has reached a service with a link to it.
    const isLinkFine = !problem || problem.reason === 'saturated'
    this.#failures = isLinkFine ? 0 : this.#failures + 1
    if (isLinkFine) this.#failuresToRebuild = FAILURES_TO_REBUILD
    onResult(problem)
    // A new session does not mend a name or a certificate.
    if (problem?.reason !== 'network' || this.#failures < this.#failuresToRebuild) return
    this.#failures = 0
    this.#failuresToRebuild = Math.min(this.#failuresToRebuild * 2, MAX_FAILURES_TO_REBUILD)
    onRebuild(problem)
  }

  async #fetchNonce(url: string): Promise<Problem | undefined> {
    const { request, timings, clock } = this.#options
    const expected = { nonce: randomText(), answer: randomText() }
    this.#expected = expected
    try {
      const { status, body, date, serviceCode } = await request(
        new URL(`${PROBE_PATH}/${expected.nonce}`, url),
        { deadlineMs: timings.deadlineMs, signal: this.#stopping.signal },
      )
      if (date !== undefined) this.#clockSkewMs = Math.round((clock.now() - date) / 1_000) * 1_000
      if (status === 200 && body === expected.answer) return undefined
      const answered = `${url} answered ${status}${serviceCode ? ` ${serviceCode}` : ''}`
      return serviceCode === SATURATED
        ? saturatedProblem(answered, serviceCode)
        : networkProblem(answered)
    } catch (error) {
      return error instanceof DeadlineError
        ? silenceProblem(url, timings.deadlineMs)
        : connectionProblem(url, error)
    } finally {
      this.#expected = undefined
    }
  }
}

function randomText(): string {
  return randomBytes(16).toString('hex')
}
