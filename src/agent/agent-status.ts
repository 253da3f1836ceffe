import { formatDuration } from '../base/clock.ts'
import type { Resources } from './device/resources.ts'
import { hasSession, type LinkState } from './link-state.ts'
import type { Reachable } from './probes/reach.ts'
import type { Reason, ShownProblem } from './problem.ts'
import type { StandbyStatus } from './sessions/standby.ts'
import type { Tunnel } from './tunnel.ts'
import type { TunnelState } from './tunnel-state.ts'
import type { DamagedRow } from './tunnel-store.ts'
import { type Upstream, upstreamProblem } from './upstreams/upstream-state.ts'

/** The serving SDK session, as shown to people. */
export interface LinkStatus extends ShownProblem {
  readonly state: LinkState
  readonly since: number
  /** Time since `since`. It stays correct if the clock was set in between. */
  readonly forMs: number
  /** Address of the service that serves or is being tried. Undefined: the hosted service. */
  readonly serverAddr?: string | undefined
  /** Round trip of the last heartbeat, in milliseconds. */
  readonly latencyMs?: number | undefined
  /** Reason why no session can replace this one, which serves until then. */
  readonly renewal?: ShownProblem | undefined
  /** Another process tries to connect with the identity of this device. */
  readonly duplicate?: { readonly ip: string; readonly seenAt: number } | undefined
  /** Set if there are several addresses. */
  readonly standby?: StandbyStatus | undefined
}

/** Source of the default policy in force. */
export interface DefaultPolicyStatus {
  /** `kept`: the file is missing or invalid, so the last valid copy is in force. */
  readonly source: 'file' | 'kept'
  readonly loadedAt: number
  /** Problem of the file, with line and column. */
  readonly problem?: string | undefined
}

/** The agent's own endpoint, and whether the agent can reach itself through it. */
export interface OwnEndpointStatus {
  readonly domain: string
  readonly url: string
  readonly state: TunnelState
  readonly since: number
  /** Reason why it is not online, why its update failed, or why the last probe failed. */
  readonly reason?: Reason
  readonly lastError?: string
  readonly remedy?: string
  /** Result of the last end-to-end probe. `unknown` before the first probe. */
  readonly reachable: Reachable
  readonly lastProbeAt?: number | undefined
}

/** Health of the agent, with remedies. */
export interface AgentStatus {
  /** One sentence, for example "12 of 14 tunnels online; service unreachable for 3 min: dns". */
  readonly verdict: string
  /** True if every tunnel is online and nothing needs a person. */
  readonly healthy: boolean
  /** True if tunnels are restored and the link is up. Result of `/readyz`. */
  readonly ready: boolean
  /** Reasons why `ready` is false, one sentence each. */
  readonly notReady: readonly string[]
  /** Facts that cannot be checked from this device, one sentence each. Not known to be wrong. */
  readonly unverified: readonly string[]
  readonly startedAt: number
  readonly deviceId: string
  readonly link: LinkStatus
  readonly tunnels: TunnelCounts
  /** Rows that could not be read. They stay unchanged. */
  readonly damagedRows: readonly DamagedRow[]
  readonly ownEndpoint: OwnEndpointStatus | undefined
  readonly defaultPolicy: DefaultPolicyStatus
  /** Reason why the authtoken of the file is not in use. */
  readonly authtokenProblem?: string | undefined
  readonly resources: Resources
  readonly versions: { readonly agent: string; readonly node: string; readonly sdk: string }
  /** `skewMs`: wall clock minus the clock of the service, after the first comparison. */
  readonly clock: { readonly now: number; readonly skewMs: number | undefined }
}

/** Round trip in milliseconds from which the status reports a slow link. */
const SLOW_LINK_MS = 1_000
/** Clock difference from which certificates and signatures may fail. */
const MAX_SKEW_MS = 60_000

export type TunnelCounts = Readonly<Record<TunnelState, number>> & { readonly total: number }

/** Facts about the agent, from which the status is concluded. */
export type AgentFacts = Omit<
  AgentStatus,
  'verdict' | 'healthy' | 'ready' | 'notReady' | 'unverified' | 'tunnels'
> & { readonly tunnels: readonly Tunnel[] }

/** Concludes the status from the facts. */
export function concludeStatus(facts: AgentFacts): AgentStatus {
  const tunnels = countTunnels(facts.tunnels)
  const complaints = complaintsOf(facts)
  const notReady = notReadyOf(facts, tunnels)
  const unverified = unverifiedOf(facts)
  return {
    ...facts,
    tunnels,
    verdict: oneSentence([
      headline(tunnels),
      ...complaints,
      ...slowness(facts.link, tunnels),
      ...unverified,
    ]),
    healthy: complaints.length === 0 && notReady.length === 0 && tunnels.online === tunnels.total,
    ready: notReady.length === 0,
    notReady,
    unverified,
  }
}

/** Joins the parts to one sentence. Removes the full stop of a remedy in the middle. */
export function oneSentence(parts: readonly string[]): string {
  return parts
    .map((part, at) => (at < parts.length - 1 ? part.replace(/\.$/, '') : part))
    .join('; ')
}

function countTunnels(tunnels: readonly Tunnel[]): TunnelCounts {
  const counts = { opening: 0, online: 0, waiting: 0, refused: 0, closing: 0 }
  for (const { status } of tunnels) counts[status.state] += 1
  return { ...counts, total: tunnels.length }
}

function headline({ online, total }: TunnelCounts): string {
  if (total === 0) return 'no tunnels'
  if (online < total) return `${online} of ${total} tunnels online`
  return total === 1 ? 'the tunnel is online' : `all ${total} tunnels online`
}

/** Returns problems with their remedies, the most important first. */
function complaintsOf(facts: AgentFacts): string[] {
  const { link, tunnels, ownEndpoint, damagedRows, defaultPolicy, authtokenProblem, clock } = facts
  const complaints: string[] = []
  if ('problem' in facts.resources) {
    const { detail, remedy } = facts.resources.problem
    complaints.push(`out of ${facts.resources.name}: ${detail}. ${remedy}`)
  }
  if (link.state !== 'up') complaints.push(linkSentence(facts))
  else complaints.push(...troubles(tunnels))
  complaints.push(...sessionTroubles(link))
  if (link.state === 'up' && ownEndpoint?.reason && !isUnverified(ownEndpoint)) {
    complaints.push(ownSentence(ownEndpoint))
  }
  complaints.push(...upstreamSentences(tunnels))
  if (damagedRows.length > 0) {
    const domains = nameSome(damagedRows.map(({ domain }) => domain))
    complaints.push(`damaged in the database: ${domains}. Create these tunnels again.`)
  }
  if (defaultPolicy.problem) complaints.push(defaultPolicy.problem)
  if (authtokenProblem) complaints.push(authtokenProblem)
  if (Math.abs(clock.skewMs ?? 0) > MAX_SKEW_MS) complaints.push(skewSentence(clock.skewMs ?? 0))
  return complaints
}

/** Problems of sessions other than the serving one. */
function sessionTroubles({ renewal, duplicate, standby }: LinkStatus): string[] {
  const because = ({ reason, remedy = '' }: ShownProblem) => `${reason}. ${remedy}`.trimEnd()
  const troubles: string[] = []
  if (renewal)
    troubles.push(`session renewal failed, previous session still in use: ${because(renewal)}`)
  if (duplicate) {
    troubles.push(
      `another device at ${duplicate.ip} has the same identity: run device-agent identity reset on the copy`,
    )
  }
  if (standby?.state === 'waiting' || standby?.state === 'refused') {
    troubles.push(`no standby session at ${standby.serverAddr}: ${because(standby)}`)
  }
  return troubles
}

function ownSentence(own: OwnEndpointStatus): string {
  const { domain, state, reason, remedy = '', reachable, lastError = '' } = own
  if (state === 'online' && reachable === 'no' && reason === 'tls') return `${lastError}. ${remedy}`
  const where = `agent API ${state === 'online' ? 'update failed, previous version online' : 'not online'} at ${domain}:`
  const what = reason === 'saturated' ? 'the device is' : where
  return `${what} ${reason}. ${remedy}`.trimEnd()
}

function linkSentence({ link }: AgentFacts): string {
  const forHow = `for ${formatDuration(link.forMs)}`
  const why = link.reason ? `: ${link.reason}. ${link.remedy ?? ''}`.trimEnd() : ''
  if (link.state === 'suspect') return `public address does not answer ${forHow}${why}`
  if (link.state === 'parked') return `stopped by the service ${forHow}${why}`
  if (link.state === 'duplicate') return `another device has the same identity ${forHow}${why}`
  if (link.state === 'refused') return `service refuses this device ${forHow}${why}`
  if (link.reason === undefined) return `connecting to the service ${forHow}`
  // Without an authtoken, no connection was tried.
  if (link.reason === 'auth') return `not connected ${forHow}${why}`
  return `service unreachable ${forHow}${why}`
}

/** Returns one sentence per reason, so that 500 tunnels with the same problem make one line. */
function troubles(tunnels: readonly Tunnel[]): string[] {
  const byTrouble = new Map<string, Tunnel[]>()
  for (const tunnel of tunnels) {
    const { reason, state } = tunnel.status
    if (!reason || isUpstreamTrouble(tunnel)) continue
    // Online with a reason: the latest version of the tunnel could not be opened.
    const trouble =
      state === 'online' ? `update failed, previous version online: ${reason}` : reason
    const group = byTrouble.get(trouble)
    if (group) group.push(tunnel)
    else byTrouble.set(trouble, [tunnel])
  }
  return [...byTrouble].map(([trouble, group]) => {
    const domains = nameSome(group.map(({ id, spec }) => spec.domain || id))
    return `${domains}: ${trouble}. ${group[0]?.status.remedy ?? ''}`.trimEnd()
  })
}

/** Describes the effect of a slow link on the tunnels, which is not a fault. */
function slowness({ state, latencyMs = 0 }: LinkStatus, { opening }: TunnelCounts): string[] {
  if (!hasSession(state) || latencyMs < SLOW_LINK_MS) return []
  const still = opening > 0 ? `, ${counted(opening, 'tunnel')} still opening` : ''
  return [`slow link: round trip ${(latencyMs / 1_000).toFixed(1)} s${still}`]
}

function notReadyOf({ link, ownEndpoint, resources }: AgentFacts, tunnels: TunnelCounts): string[] {
  const notReady: string[] = []
  if ('problem' in resources) notReady.push(`The agent is out of ${resources.name}.`)
  if (!hasSession(link.state)) notReady.push('There is no link to the service.')
  else if (link.state === 'suspect') notReady.push('The public address does not answer.')
  if (ownEndpoint && ownEndpoint.state !== 'online') notReady.push('The agent API is not online.')
  if (tunnels.opening > 0) notReady.push(`${counted(tunnels.opening, 'tunnel')} still opening.`)
  return notReady
}

function unverifiedOf({ link, ownEndpoint }: AgentFacts): string[] {
  if (link.state !== 'up' || !ownEndpoint || !isUnverified(ownEndpoint)) return []
  const { domain, reason, remedy = '' } = ownEndpoint
  return [`unverified: this device cannot reach ${domain} itself (${reason}). ${remedy}`.trimEnd()]
}

function isUnverified({ state, reachable }: OwnEndpointStatus): boolean {
  return state === 'online' && reachable === 'unverified'
}

/** Whether the tunnel's problem is one of its upstream. Such problems are reported by service. */
function isUpstreamTrouble({ spec, status }: Tunnel): boolean {
  const { state, lastError, upstream, upstreamSettings, visitors } = status
  const problem = upstreamProblem(spec.forwardsTo, upstream, upstreamSettings, visitors?.busy)
  return state === 'online' && problem !== undefined && problem.detail === lastError
}

/** Sentences about services, by problem. */
const UPSTREAM_SENTENCES: Partial<Record<Upstream | 'unhealthy', (services: string) => string>> = {
  down: (services) => `no answer from ${services}: start the upstream`,
  unhealthy: (services) =>
    `health check failed for ${services}: start the upstream or check its log`,
  busy: (services) => `all connections of ${services} are in use: close unneeded streams`,
  slow: (services) => `requests to ${services} time out: check whether the upstream hangs`,
  garbage: (services) => `no valid HTTP from ${services}: check which service listens there`,
  old_tls: (services) => `${services} only offers old TLS: update it or allow it`,
  untrusted: (services) => `certificate of ${services} not trusted: renew or allow it`,
}

function upstreamSentences(tunnels: readonly Tunnel[]): string[] {
  const groups = new Map<string, Set<string>>()
  for (const { status, spec } of tunnels) {
    const trouble = troubleOf(status)
    if (UPSTREAM_SENTENCES[trouble] === undefined) continue
    groups.set(trouble, (groups.get(trouble) ?? new Set()).add(spec.forwardsTo))
  }
  return Object.entries(UPSTREAM_SENTENCES).flatMap(([trouble, sentence]) => {
    const services = groups.get(trouble)
    return services ? [sentence(nameSome([...services]))] : []
  })
}

/**
 * Returns the upstream state for the sentence. A health check with a path also fails for an error status, so
 * a service may still be running.
 */
function troubleOf({ upstream, upstreamSettings }: Tunnel['status']): Upstream | 'unhealthy' {
  return upstream === 'down' && upstreamSettings.health.startsWith('/') ? 'unhealthy' : upstream
}

function skewSentence(skewMs: number): string {
  const amount = formatDuration(Math.abs(skewMs))
  return `the device clock is ${amount} ${skewMs > 0 ? 'ahead of' : 'behind'} the service: set the clock that is wrong`
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

function nameSome(names: readonly string[]): string {
  const unique = [...new Set(names)]
  const rest = unique.length - 3
  return rest > 0 ? `${unique.slice(0, 3).join(', ')} and ${rest} more` : unique.join(', ')
}
