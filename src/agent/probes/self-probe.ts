import { randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { DeadlineError } from '../../base/deadline.ts'
import { AutoResetEvent } from '../../base/deferred.ts'
import { formatListenAddress, type ListenAddress } from '../../base/listen-address.ts'
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
import { meaningOf, type Reach, type Reachable, reachProblem, UNKNOWN_REACH } from './reach.ts'
import { CLOCK_TOLERANCE_MS, type ServiceTime } from './service-time.ts'

/** Path at which the agent API answers the probe that arrives through the public domain. */
export const PROBE_PATH = '/.well-known/device-agent-probe'

/**
 * Codes of a gateway without a free stream on the link of the device, or on the link to its gateway. Answered
 * within 10 s.
 */
const SATURATED: ReadonlySet<string> = new Set(['ERR_GATEWAY_SATURATED', 'ERR_GATEWAY_LINK_FULL'])

/**
 * Consecutive failures before a new link is tried. If the link is silent too, one failure counts as this
 * many.
 */
const FAILURES_TO_REBUILD = 2
/** If a new link did not help, the next one needs twice as many failures, up to this number. */
const MAX_FAILURES_TO_REBUILD = 64

const UNVERIFIED_REMEDY =
  'Open the address from another network. If it works there, no action is needed: the router may lack hairpin NAT. In a closed network, set SVC_INGRESS_ADDR to the address of the gateway, such as 10.0.0.1:443, and restart the agent.'

/** With SVC_INGRESS_ADDR, the device asks only the gateway at that address. */
const ingressRemedy = (ingress: ListenAddress) =>
  `Open the address from another network. If it works there, only the way from this device fails: SVC_INGRESS_ADDR is ${formatListenAddress(ingress)}. Start the gateway at that address, or set SVC_INGRESS_ADDR to another gateway and restart the agent.`

type Within = Pick<PublicRequest, 'deadlineMs' | 'signal'>

export interface SelfProbeOptions {
  /** Returns the agent's public URL while its own endpoint is online. */
  readonly url: () => string | undefined
  /** Requests a public URL like an unknown client. */
  readonly request: (url: URL, within: Within) => Promise<PublicAnswer>
  readonly timings: ProbeTimings
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  /** SVC_INGRESS_ADDR, which requests go to. Undefined: the address of the URL. */
  readonly ingress?: ListenAddress | undefined
  /** Watches the current link. */
  readonly watchLink: () => LinkWatch
  /** Updated from each answer. */
  readonly serviceTime: ServiceTime
  /** Requests the time of the service when no certificate can be trusted. */
  readonly serviceDate: () => Promise<number | undefined>
  /**
   * Returns the end of the validity of a URL's certificate, whichever CA signed it. Undefined if it is not
   * available.
   */
  readonly certificateEnd: (url: URL) => Promise<number | undefined>
  /** Called after each probe. */
  readonly onResult: (reach: Reach) => void
  /** Called if a new link may help. */
  readonly onRebuild: (problem: Problem) => void
}

/** Result of one probe. `answered`: the service itself reports that the endpoint is not there. */
type Outcome =
  | { readonly name: 'reached' }
  | {
      readonly name: 'busy' | 'misdated' | 'expired' | 'answered' | 'unanswered'
      readonly problem: Problem
    }

const REACHED: Reach = { name: 'reached' }

/**
 * Regularly fetches a nonce through the agent's own public domain. A link that is up and a bound endpoint do
 * not prove that traffic arrives. Without any answer, the route from this device may be the only problem, so
 * the link is checked too.
 */
export class SelfProbe {
  readonly #options: SelfProbeOptions
  readonly #wakeUp = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  #expected: { readonly nonce: string; readonly answer: string } | undefined
  #failures = 0
  #failuresToRebuild = FAILURES_TO_REBUILD
  #reach: Reach = UNKNOWN_REACH
  /** Aborted when the link changes, to end the wait for its answer. */
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

  /** Probes now, because the endpoint came online. */
  kick(): void {
    this.#wakeUp.set()
  }

  /** Reports a new link, which makes answers of the previous one useless. */
  linkChanged(): void {
    this.#doubting.abort('another link')
  }

  /** Resets the result, because there is no endpoint to reach. */
  forget(): void {
    if (this.#lastProbeAt === undefined) return
    this.#lastProbeAt = undefined
    this.#reach = UNKNOWN_REACH
    this.#options.onResult(UNKNOWN_REACH)
  }

  /** Returns the answer to the nonce sent last by this process, otherwise undefined. */
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
      // Jitter, so that probes of a fleet do not synchronize.
      const jitteredMs = pauseMs * (0.75 + random() / 2)
      await this.#wakeUp.wait(clock, Number.isFinite(jitteredMs) ? jitteredMs : undefined)
    }
  }

  async #probe(url: string): Promise<void> {
    const { clock, watchLink } = this.#options
    this.#doubting = new AbortController()
    const doubting = this.#doubting.signal
    const link = watchLink()
    // A probe crosses the link twice: to the service and back to this device.
    const deadlineMs = this.#options.timings.deadlineMs + 2 * (link.slackMs ?? 0)
    const outcome = await this.#fetchNonce(url, deadlineMs)
    const isLinkFine = outcome.name === 'unanswered' && (await link.answers(doubting))
    if (this.#stopping.signal.aborted || this.#options.url() !== url) return
    // The result may belong to either of the two links, so the next probe starts at once.
    if (doubting.aborted && outcome.name !== 'reached') return this.kick()
    this.#lastProbeAt = clock.now()
    this.#conclude(reachOf(outcome, isLinkFine, this.#options.ingress))
    this.#judgeLink(outcome, isLinkFine)
  }

  #conclude(reach: Reach): void {
    const { log, onResult } = this.#options
    const before = this.#reach.name
    this.#reach = reach
    if (reach.name !== before) {
      if ('problem' in reach)
        log.warn({ detail: reach.problem.detail }, `self-probe result: ${reach.name}`)
      else if (before !== 'unknown') log.info('self-probe succeeded again')
    }
    onResult(reach)
  }

  #judgeLink(outcome: Outcome, isLinkFine: boolean): void {
    const { onRebuild } = this.#options
    // A device that is reported as busy has a link to the service.
    const reach = reachOf(outcome, isLinkFine, this.#options.ingress)
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

  /**
   * Returns a problem if the clock of this device is wrong. A certificate that is invalid at its time may be
   * valid at the service's time.
   */
  async #clockToBlame(url: string): Promise<Problem | undefined> {
    const { serviceTime, serviceDate } = this.#options
    const date = await serviceDate().catch(() => undefined)
    if (date !== undefined) serviceTime.note(date)
    const { now, skewMs } = serviceTime
    if (now === undefined || skewMs === undefined) return undefined
    return Math.abs(skewMs) > CLOCK_TOLERANCE_MS ? clockProblem(url, now + skewMs, now) : undefined
  }
}

function reachOf(outcome: Outcome, isLinkFine: boolean, ingress: ListenAddress | undefined): Reach {
  if (outcome.name === 'reached') return REACHED
  const { problem } = outcome
  const { name } = outcome
  if (name === 'busy' || name === 'misdated' || name === 'expired') return { name, problem }
  if (!isLinkFine) return { name: 'unreachable', problem }
  const remedy = ingress ? ingressRemedy(ingress) : UNVERIFIED_REMEDY
  return { name: 'unverified', problem: { ...problem, remedy } }
}

function randomText(): string {
  return randomBytes(16).toString('hex')
}
