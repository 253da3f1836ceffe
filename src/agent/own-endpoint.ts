import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { OwnEndpointStatus } from './agent-status.ts'
import type { Conflicts } from './conflicts.ts'
import type { Session } from './connector.ts'
import type { KeptValues } from './kept-values.ts'
import { type Reach, reachProblem } from './probes/reach.ts'
import { SelfProbe, type SelfProbeOptions } from './probes/self-probe.ts'
import type { Problem } from './problem.ts'
import type { AgentTimings } from './timings.ts'
import { TunnelSupervisor, type TunnelSupervisorOptions } from './tunnel-supervisor.ts'

/**
 * Port of the service's ingress, which all endpoints share. It is needed for URLs of endpoints that are not
 * open yet.
 */
export class PublicPort {
  readonly #kept: KeptValues
  readonly #log: Logger
  #port: string

  constructor(kept: KeptValues, log: Logger) {
    this.#kept = kept
    this.#log = log
    this.#port = kept.get('public-port') ?? ''
  }

  /** Reads the port from the URL of an open endpoint. */
  learnFrom(url: string): void {
    const { protocol, port } = new URL(url)
    // Each TCP address has a separate port.
    if (protocol === 'tcp:' || port === this.#port) return
    this.#port = port
    try {
      this.#kept.set('public-port', port)
    } catch (error) {
      this.#log.warn({ err: error }, 'cannot save the public port')
    }
  }

  urlOf(domain: string): string {
    return `https://${domain}${this.#port === '' ? '' : `:${this.#port}`}`
  }
}

export interface OwnEndpointOptions {
  readonly domain: string
  /** Absolute path of the unix socket that serves the API. */
  readonly socketPath: string
  /** Returns the URL that the domain has when it is open. */
  readonly urlOf: (domain: string) => string
  readonly session: () => Session | undefined
  readonly request: SelfProbeOptions['request']
  readonly ingress?: SelfProbeOptions['ingress']
  readonly timings: Pick<AgentTimings, 'probe' | 'tunnel'>
  readonly conflicts: Conflicts
  readonly random?: () => number
  readonly clock: Clock
  readonly log: Logger
  readonly onChange: () => void
  readonly onTried?: TunnelSupervisorOptions['onTried']
  readonly watchLink: SelfProbeOptions['watchLink']
  readonly serviceTime: SelfProbeOptions['serviceTime']
  readonly serviceDate: SelfProbeOptions['serviceDate']
  readonly certificateEnd: SelfProbeOptions['certificateEnd']
  /** Called after each probe. */
  readonly onProbe: (reach: Reach) => void
  readonly onRebuild: (problem: Problem) => void
}

/** Endpoint of the agent's own API. It is supervised like other endpoints and used by the probe. */
export class OwnEndpoint {
  readonly #options: OwnEndpointOptions
  readonly #supervisor: TunnelSupervisor
  readonly probe: SelfProbe

  constructor(options: OwnEndpointOptions) {
    const { domain, socketPath, session, timings, conflicts, clock, onProbe, onRebuild } = options
    const { request, watchLink, serviceTime, serviceDate, certificateEnd } = options
    const log = options.log.child({ domain })
    const random = options.random && { random: options.random }
    this.#options = options
    this.#supervisor = new TunnelSupervisor({
      session,
      // No policy: a policy that answers or denies requests would lock all clients out of the API, including
      // the probe.
      wanted: () =>
        Promise.resolve({
          domain,
          dialUrl: `unix:${socketPath}`,
          forwardsTo: 'device-agent API',
          policy: undefined,
        }),
      timings: timings.tunnel,
      conflicts,
      clock,
      log,
      onChange: () => this.#changed(),
      onTried: options.onTried,
      ...random,
    })
    this.probe = new SelfProbe({
      url: () => (this.#supervisor.status.state === 'online' ? this.#supervisor.url : undefined),
      request,
      ingress: options.ingress,
      watchLink,
      serviceTime,
      serviceDate,
      certificateEnd,
      timings: timings.probe,
      clock,
      log,
      onResult: onProbe,
      onRebuild,
      ...random,
    })
  }

  get url(): string | undefined {
    return this.#supervisor.url
  }

  get status(): OwnEndpointStatus {
    const { state, since, problem: ownProblem } = this.#supervisor.status
    const { domain, urlOf } = this.#options
    const { reach } = this.probe
    const isTold = state === 'online' && reach.name !== 'unreachable'
    const problem = (isTold && reachProblem(reach)) || ownProblem
    return {
      domain,
      url: this.url ?? urlOf(domain),
      state,
      since,
      ...(problem && { reason: problem.reason, lastError: problem.detail, remedy: problem.remedy }),
      reachable: this.probe.reachable,
      lastProbeAt: this.probe.lastProbeAt,
    }
  }

  /** See `TunnelSupervisor`. */
  isConcludedOn(session: Session): boolean {
    return this.#supervisor.isConcludedOn(session)
  }

  start(): void {
    this.#supervisor.start()
    this.probe.start()
  }

  /** Stops without closing the endpoint at the service. */
  async stopKeepingEndpoint(): Promise<void> {
    await this.probe.stop()
    await this.#supervisor.stopKeepingEndpoint()
  }

  linkChanged(): void {
    this.probe.linkChanged()
    this.#supervisor.linkChanged()
  }

  #changed(): void {
    const { state } = this.#supervisor.status
    if (state === 'online') this.probe.kick()
    if (state === 'refused') this.probe.forget()
    this.#options.onChange()
  }
}
