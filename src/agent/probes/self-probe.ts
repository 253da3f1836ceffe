import { randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { DeadlineError } from '../../base/deadline.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { networkProblem, type Problem, saturatedProblem } from '../problem.ts'
import type { ProbeTimings } from '../timings.ts'
import {
  clockProblem,
  connectionProblem,
  expiredProblem,
  isDateError,
  isExpiry,
  silenceProblem,
} from './connection-problem.ts'
import type { LinkWatch } from './link-echoes.ts'
import type { PublicAnswer, PublicRequest } from './public-request.ts'
import { meaningOf, type Reach, type Reachable, reachProblem } from './reach.ts'
import { CLOCK_TOLERANCE_MS, type ServiceTime } from './service-time.ts'

/** Where the agent's API answers the probe that comes back through the public domain. */
export const PROBE_PATH = '/.well-known/device-agent-probe'

/** What a gateway answers that has no stream of the device left, or of the link to its gateway; within 10 s. */
const SATURATED: ReadonlySet<string> = new Set(['ERR_GATEWAY_SATURATED', 'ERR_GATEWAY_LINK_FULL'])

/** Failures in a row after which a new link is tried. A link that is silent, too, counts for as many. */
const FAILURES_TO_REBUILD = 2
/** When a new link did not help, the next try waits for twice as many failures, up to this many. */
const MAX_FAILURES_TO_REBUILD = 64

const UNVERIFIED_REMEDY =
  'Open the address from another network. If it works there, no action is needed: the router may lack hairpin NAT. SVC_INGRESS_ADDR can set another route.'

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
  /** Watches the link that is up now. */
  readonly watchLink: () => LinkWatch
  /** Learns from each answer. */
  readonly serviceTime: ServiceTime
  /** Asks the service for its date where no certificate can be believed. */
  readonly serviceDate: () => Promise<number | undefined>
  /** Until when the certificate of an URL is good, whoever signed it; undefined when it cannot be seen. */
  readonly certificateEnd: (url: URL) => Promise<number | undefined>
  /** After each probe. */
  readonly onResult: (reach: Reach) => void
  /** A new link may help. */
  readonly onRebuild: (problem: Problem) => void
}

/** What one probe met. `answered`: the service itself says that the endpoint is not there. */
type Outcome =
  | { readonly name: 'reached' }
  | {
      readonly name: 'busy' | 'misdated' | 'expired' | 'answered' | 'unanswered'
      readonly problem: Problem
    }

const REACHED: Reach = { name: 'reached' }
const UNKNOWN: Reach = { name: 'unknown' }

/**
 * Fetches a nonce through the agent's own public domain, again and again: a link that is up and an
 * endpoint that is bound do not prove that traffic arrives. Where no answer comes at all, the way
 * from here may be at fault alone: the link is asked, too.
 */
export class SelfProbe {
  readonly #options: SelfProbeOptions
  readonly #wakeUp = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  #expected: { readonly nonce: string; readonly answer: string } | undefined
  #failures = 0
  #failuresToRebuild = FAILURES_TO_REBUILD
  #reach: Reach = UNKNOWN
  /** Ends the wait for what the link says: it is another one now. */
  #doubting = new AbortController()
  #lastProbeAt: number | undefined

  constructor(options: SelfProbeOptions) {
    this.#options = options
  }

  get reach(): Reach {
    return this.#reach
  }

  get reachable(): Reachable {
    return meaningOf(this.#reach).shown
  }

  get lastProbeAt(): number | undefined {
    return this.#lastProbeAt
  }

  start(): void {
    this.#running ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the probe is stopping'))
    this.#doubting.abort('stopping')
    this.#wakeUp.set()
    await this.#running
  }

  /** Probes now: the endpoint came online. */
  kick(): void {
    this.#wakeUp.set()
  }

  /** What the one before says is of no use any more. */
  linkChanged(): void {
    this.#doubting.abort('another link')
  }

  /** Nothing is known any more: there is no endpoint that could be reached. */
  forget(): void {
    if (this.#lastProbeAt === undefined) return
    this.#lastProbeAt = undefined
    this.#reach = UNKNOWN
    this.#options.onResult(UNKNOWN)
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
      const pauseMs = reachProblem(this.#reach) ? timings.retryMs : timings.intervalMs
      // Jitter, so that the probes of a fleet do not fall into step.
      const jitteredMs = pauseMs * (0.75 + random() / 2)
      await this.#wakeUp.wait(clock, Number.isFinite(jitteredMs) ? jitteredMs : undefined)
    }
  }

  async #probe(url: string): Promise<void> {
    const { clock, watchLink } = this.#options
    this.#doubting = new AbortController()
    const doubting = this.#doubting.signal
    const link = watchLink()
    // The way there and the way from the service to this device are both on the link.
    const deadlineMs = this.#options.timings.deadlineMs + 2 * (link.slackMs ?? 0)
    const outcome = await this.#fetchNonce(url, deadlineMs)
    const isLinkFine = outcome.name === 'unanswered' && (await link.answers(doubting))
    if (this.#stopping.signal.aborted || this.#options.url() !== url) return
    // Nobody knows which of the two links it was about: the next probe follows at once.
    if (doubting.aborted && outcome.name !== 'reached') return this.kick()
    this.#lastProbeAt = clock.now()
    this.#conclude(reachOf(outcome, isLinkFine))
    this.#judgeLink(outcome, isLinkFine)
  }

  #conclude(reach: Reach): void {
    const { log, onResult } = this.#options
    const before = this.#reach.name
    this.#reach = reach
    if (reach.name !== before) {
      if ('problem' in reach) log.warn({ detail: reach.problem.detail }, `probe: ${reach.name}`)
      else if (before !== 'unknown') log.info('probe succeeded again')
    }
    onResult(reach)
  }

  #judgeLink(outcome: Outcome, isLinkFine: boolean): void {
    const { onRebuild } = this.#options
    // Who is told that the device is busy has reached a service with a link to it.
    const reach = reachOf(outcome, isLinkFine)
    if (meaningOf(reach).isLinkFine || !('problem' in outcome)) {
      this.#failures = 0
      this.#failuresToRebuild = FAILURES_TO_REBUILD
      return
    }
    this.#failures += outcome.name === 'unanswered' ? FAILURES_TO_REBUILD : 1
    if (this.#failures < this.#failuresToRebuild) return
    this.#failures = 0
    this.#failuresToRebuild = Math.min(this.#failuresToRebuild * 2, MAX_FAILURES_TO_REBUILD)
    onRebuild(outcome.problem)
  }

  async #fetchNonce(url: string, deadlineMs: number): Promise<Outcome> {
    const { request, serviceTime } = this.#options
    const expected = { nonce: randomText(), answer: randomText() }
    this.#expected = expected
    try {
      const { status, body, date, serviceCode } = await request(
        new URL(`${PROBE_PATH}/${expected.nonce}`, url),
        { deadlineMs, signal: this.#stopping.signal },
      )
      if (date !== undefined) serviceTime.note(date)
      if (status === 200 && body === expected.answer) return { name: 'reached' }
      const answered = `${url} answered ${status}${serviceCode ? ` ${serviceCode}` : ''}`
      return serviceCode !== undefined && SATURATED.has(serviceCode)
        ? { name: 'busy', problem: saturatedProblem(answered, serviceCode) }
        : { name: 'answered', problem: networkProblem(answered) }
    } catch (error) {
      const misdated = isDateError(error) ? await this.#clockToBlame(url) : undefined
      if (misdated) return { name: 'misdated', problem: misdated }
      if (isExpiry(error)) return { name: 'expired', problem: await this.#expired(url) }
      const isSlow = error instanceof DeadlineError
      const problem = isSlow ? silenceProblem(url, deadlineMs) : connectionProblem(url, error)
      return { name: 'unanswered', problem }
    } finally {
      this.#expected = undefined
    }
  }

  async #expired(url: string): Promise<Problem> {
    const { certificateEnd, serviceTime } = this.#options
    const endedAt = await certificateEnd(new URL(url)).catch(() => undefined)
    return expiredProblem(url, endedAt, serviceTime.now !== undefined)
  }

  /** A certificate for another time than it is here may be good at the service's. */
  async #clockToBlame(url: string): Promise<Problem | undefined> {
    const { serviceTime, serviceDate } = this.#options
    const date = await serviceDate().catch(() => undefined)
    if (date !== undefined) serviceTime.note(date)
    const { now, skewMs } = serviceTime
    if (now === undefined || skewMs === undefined) return undefined
    return Math.abs(skewMs) > CLOCK_TOLERANCE_MS ? clockProblem(url, now + skewMs, now) : undefined
  }
}

function reachOf(outcome: Outcome, isLinkFine: boolean): Reach {
  if (outcome.name === 'reached') return REACHED
  const { problem } = outcome
  const { name } = outcome
  if (name === 'busy' || name === 'misdated' || name === 'expired') return { name, problem }
  if (!isLinkFine) return { name: 'unreachable', problem }
  return { name: 'unverified', problem: { ...problem, remedy: UNVERIFIED_REMEDY } }
}

function randomText(): string {
  return randomBytes(16).toString('hex')
}
