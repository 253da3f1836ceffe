import { formatDuration } from '../base/clock.ts'
import { parseListenAddress } from '../base/listen-address.ts'
import type { Resources, Shortage } from './device/resources.ts'
import { hasSession, type LinkState } from './link-state.ts'
import { CLOCK_REMEDY } from './probes/connection-problem.ts'
import type { Reachable } from './probes/reach.ts'
import { hostedWords, type Problem, type Reason, type ShownProblem, STOP_ONE } from './problem.ts'
import { LOSSES_MS } from './sessions/link-pauses.ts'
import type { StandbyStatus } from './sessions/standby.ts'
import type { Tunnel } from './tunnel.ts'
import type { TunnelState } from './tunnel-state.ts'
import type { DamagedRow } from './tunnel-store.ts'
import { upstreamProblem } from './upstreams/upstream-state.ts'
import {
  type Cause,
  causeIn,
  refusedLinkText,
  refusedTunnelText,
  sentence,
  servingText,
  VERDICT_TEXTS,
  verdictFrom,
} from './verdict.ts'

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
  /** Losses of the link in the last `LOSSES_MS`. */
  readonly losses?: number | undefined
}

/** Source of the default policy in force. */
export interface DefaultPolicyStatus {
  /** `kept`: the file is missing or invalid, so the last valid copy is in force. */
  readonly source: 'file' | 'kept'
  readonly loadedAt: number
  /** Path of the file. */
  readonly path?: string | undefined
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
  /** Headline without the storage: "12 of 14 tunnels work. localhost:9 refuses connections." */
  readonly verdict: string
  /** Its first part: how many tunnels serve visitors. */
  readonly serving: string
  /** Problems, the most important first. */
  readonly causes: readonly Cause[]
  /** Facts that are worth a look and no problems, the most important first. */
  readonly notes: readonly Cause[]
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

/** Round trip in milliseconds from which a link is slow. */
const SLOW_LINK_MS = 1_000
/** From this number of losses on, a link is unstable: a restart of the gateway is one loss. */
const MANY_LOSSES = 4
/** The gateway answered, so its network works. */
const DECIDED: ReadonlySet<LinkState> = new Set(['refused', 'parked', 'duplicate'])
/** Clock difference from which certificates and signatures may fail. */
const MAX_SKEW_MS = 60_000

export type TunnelCounts = Readonly<Record<TunnelState, number>> & { readonly total: number }

/** Facts about the agent, from which the status is concluded. */
export type AgentFacts = Omit<
  AgentStatus,
  | 'verdict'
  | 'serving'
  | 'causes'
  | 'notes'
  | 'healthy'
  | 'ready'
  | 'notReady'
  | 'unverified'
  | 'tunnels'
> & { readonly tunnels: readonly Tunnel[] }

/** Concludes the status from the facts. */
export function concludeStatus(facts: AgentFacts): AgentStatus {
  const tunnels = countTunnels(facts.tunnels)
  const isHosted = facts.link.serverAddr === undefined
  const named = (cause: Cause) => (isHosted ? hostedCause(cause) : cause)
  const problems = problemsOf(facts).map(named)
  const notReady = notReadyOf(facts, tunnels)
  const unverified = unverifiedOf(facts)
  const serving = servingText(facts.tunnels)
  const ofLink = [...flapping(facts.link), ...slowness(facts.link)]
  const notes = [...ofLink, ...unverified, ...outdatedPolicies(facts)].map(named)
  return {
    ...facts,
    tunnels,
    verdict: verdictFrom(serving, [...problems, ...notes]).headline,
    serving,
    causes: problems,
    notes,
    healthy: problems.length === 0 && notReady.length === 0 && tunnels.online === tunnels.total,
    ready: notReady.length === 0,
    notReady,
    unverified: unverified.map(({ problem, remedy }) => `${sentence(problem)} ${remedy}`.trimEnd()),
  }
}

function hostedCause({ problem, remedy, short, ...rest }: Cause): Cause {
  const words = { problem: hostedWords(problem), remedy: hostedWords(remedy) }
  return { ...rest, ...words, ...(short !== undefined && { short: hostedWords(short) }) }
}

function countTunnels(tunnels: readonly Tunnel[]): TunnelCounts {
  const counts = { opening: 0, online: 0, waiting: 0, refused: 0, closing: 0 }
  for (const { status } of tunnels) counts[status.state] += 1
  return { ...counts, total: tunnels.length }
}

/** Returns problems with their remedies, the most important first. */
function problemsOf(facts: AgentFacts): Cause[] {
  const { link, tunnels, ownEndpoint: own, damagedRows, authtokenProblem, resources } = facts
  const isUp = link.state === 'up'
  const ownProblem = isUp && own?.reason && !isUnverified(own) ? [ownCause(own)] : []
  const isExpired = own?.state === 'online' && own.reason === 'tls'
  return [
    ...('problem' in resources ? [shortage(resources.name, resources.problem)] : []),
    ...(isUp ? [] : [linkCause(link)]),
    // Visitors of every tunnel meet these two.
    ...(isExpired || own?.reason === 'saturated' ? ownProblem : []),
    ...(isUp ? tunnelCauses(tunnels) : []),
    ...(isExpired || own?.reason === 'saturated' ? [] : ownProblem),
    ...sessionCauses(link),
    ...(damagedRows.length > 0 ? [damagedCause(damagedRows)] : []),
    ...(facts.defaultPolicy.problem ? [policyCause(facts.defaultPolicy.problem)] : []),
    ...(authtokenProblem ? [causeIn(authtokenProblem)] : []),
    ...skewCauses(facts.clock.skewMs ?? 0),
  ]
}

function shortage(name: Shortage, { detail, remedy }: Problem): Cause {
  const short = VERDICT_TEXTS[name]()
  return { short, problem: `${short}: ${detail}`, remedy }
}

function linkCause(link: LinkStatus): Cause {
  const { state, reason, remedy = '', serverAddr, serviceCode } = link
  const name = serverAddr ?? 'the hosted service'
  const problem = link.lastError ?? ''
  if (state === 'suspect') return { short: VERDICT_TEXTS.suspect(), problem, remedy, name }
  if (state === 'parked') return { short: VERDICT_TEXTS.parked(), problem, remedy }
  if (state === 'duplicate') return { short: VERDICT_TEXTS.duplicate(), problem, remedy }
  if (reason === undefined) return { problem: VERDICT_TEXTS.connecting(name), remedy: '' }
  if (reason === 'clock') return { short: VERDICT_TEXTS.clocks(), problem, remedy }
  if (state === 'refused') {
    return { short: refusedLinkText(reason, serviceCode), problem, remedy }
  }
  // A lookup names the host alone.
  const host = parseListenAddress(name)?.host ?? name
  return { problem, remedy, name: problem.includes(name) ? name : host }
}

/** Groups problems, so that 500 tunnels with the same problem make one line. */
function tunnelCauses(tunnels: readonly Tunnel[]): Cause[] {
  const groups = new Map<string, Tunnel[]>()
  for (const tunnel of tunnels) {
    const { reason, state, upstream } = tunnel.status
    if (reason === undefined) continue
    const key = [reason, state, isUpstreamTrouble(tunnel) && upstream].join(' ')
    const alike = groups.get(key)
    if (alike) alike.push(tunnel)
    else groups.set(key, [tunnel])
  }
  const bySize = [...groups.values()].sort((a, b) => b.length - a.length)
  return bySize.flatMap(([first, ...rest]) => {
    if (!first) return []
    if (!isUpstreamTrouble(first)) {
      return [{ ...tunnelCause(first), others: moreOf(rest.length, 'tunnel') }]
    }
    const services = new Set(rest.map(({ spec }) => spec.forwardsTo))
    services.delete(first.spec.forwardsTo)
    return [{ ...serviceCause(first), others: moreOf(services.size, 'service') }]
  })
}

function serviceCause({ spec, status }: Tunnel): Cause {
  return { problem: status.lastError ?? '', remedy: status.remedy ?? '', name: spec.forwardsTo }
}

function tunnelCause({ spec, status }: Tunnel): Cause {
  const { state, reason = 'internal', remedy = '', serviceCode, lastError = reason } = status
  // A tunnel without a domain gets its name from the gateway.
  const name = spec.domain || `the tunnel to ${spec.forwardsTo}`
  const problem = lastError.includes(name) ? lastError : `${name}: ${lastError}`
  const cause = { problem, remedy, name: spec.domain }
  if (state === 'online') return { ...cause, short: VERDICT_TEXTS.notUpdated(name) }
  if (reason === 'upstream') {
    const { forwardsTo } = spec
    return { ...cause, short: VERDICT_TEXTS.notAllowedService(forwardsTo), name: forwardsTo }
  }
  if (serviceCode === undefined && state !== 'refused') {
    return { ...cause, short: VERDICT_TEXTS.notOpened(name) }
  }
  return { ...cause, short: refusedTunnelText(reason, name) }
}

/** Problems of sessions other than the serving one. */
function sessionCauses({ renewal, duplicate, standby }: LinkStatus): Cause[] {
  const causes: Cause[] = []
  const because = (short: string, { lastError, remedy = '' }: ShownProblem) => ({
    short,
    problem: lastError === undefined ? short : `${short}: ${lastError}`,
    remedy,
  })
  if (renewal) causes.push(because(VERDICT_TEXTS.renewal(), renewal))
  if (duplicate) {
    const short = VERDICT_TEXTS.copy()
    causes.push({ short, problem: `${short}: ${duplicate.ip}`, remedy: STOP_ONE })
  }
  if (standby?.state === 'waiting' || standby?.state === 'refused') {
    const name = standby.serverAddr ?? 'the hosted service'
    causes.push({ ...because(VERDICT_TEXTS.standby(name), standby), name })
  }
  return causes
}

function ownCause({
  domain,
  state,
  reason,
  remedy = '',
  lastError,
  reachable,
}: OwnEndpointStatus): Cause {
  const problem = lastError ?? reason ?? ''
  if (reason === 'saturated') return { short: VERDICT_TEXTS.saturated(), problem, remedy }
  if (state === 'online' && reachable === 'no') return { problem, remedy, name: domain }
  const text = state === 'online' ? VERDICT_TEXTS.notUpdated : VERDICT_TEXTS.ownOffline
  return { short: text(domain), problem: `${text(domain)}: ${problem}`, remedy, name: domain }
}

function damagedCause([first, ...rest]: readonly DamagedRow[]): Cause {
  const name = first?.domain ?? ''
  const others = moreOf(rest.length, 'tunnel')
  return { problem: VERDICT_TEXTS.damaged(name), remedy: 'Create it again.', name, others }
}

function policyCause(problem: string): Cause {
  const short = VERDICT_TEXTS.defaultPolicy()
  return {
    short,
    problem,
    remedy: 'Correct the file. Until then, the last valid policy is in effect.',
  }
}

export const isSlow = ({ state, latencyMs = 0 }: LinkStatus): boolean =>
  hasSession(state) && latencyMs >= SLOW_LINK_MS

/** Describes a link that serves in between, which is not a fault of this moment. */
function flapping({ losses = 0, state }: LinkStatus): Cause[] {
  // Beside a decision of the gateway, earlier losses lead to a wrong remedy.
  if (losses < MANY_LOSSES || DECIDED.has(state)) return []
  const problem = `${VERDICT_TEXTS.flapping()}: ${losses} times in ${LOSSES_MS / 60_000} minutes`
  const remedy =
    'Check the signal or the network of the device. Restarts of the gateway count too. If other devices lose their links too, check the gateway.'
  return [{ problem, remedy }]
}

/** Describes the effect of a slow link on the tunnels, which is not a fault. */
function slowness(link: LinkStatus): Cause[] {
  if (!isSlow(link)) return []
  const seconds = ((link.latencyMs ?? 0) / 1_000).toFixed(1)
  const problem = `${VERDICT_TEXTS.slowLink()}: a round trip takes ${seconds} s`
  return [{ problem, remedy: 'Check the signal or the network of the device.' }]
}

/** Describes policies that run as before although newer checks refuse them, which is not a fault. */
function outdatedPolicies({ tunnels, defaultPolicy }: AgentFacts): Cause[] {
  const [first, ...rest] = tunnels.filter(({ status }) => status.policyWarning !== undefined)
  if (!first) return []
  const name = first.spec.domain || first.id
  const short = VERDICT_TEXTS.outdatedPolicy(name)
  const problem = `${short}, which runs as before: ${first.status.policyWarning}`
  const { path } = defaultPolicy
  const remedy = first.spec.policy
    ? 'Correct the policy and replace the tunnel.'
    : `Correct the default policy${path === undefined ? '' : ` (${path})`}.`
  return [{ short, problem, remedy, name, others: moreOf(rest.length, 'tunnel') }]
}

function skewCauses(skewMs: number): Cause[] {
  if (Math.abs(skewMs) <= MAX_SKEW_MS) return []
  const amount = formatDuration(Math.abs(skewMs))
  const problem = `the device clock is ${amount} ${skewMs > 0 ? 'ahead of' : 'behind'} the gateway`
  return [{ problem, remedy: CLOCK_REMEDY }]
}

function moreOf(count: number, noun: string): string | undefined {
  return count === 0 ? undefined : `${count} more ${noun}${count === 1 ? '' : 's'}`
}

function notReadyOf({ link, ownEndpoint, resources }: AgentFacts, tunnels: TunnelCounts): string[] {
  const notReady: string[] = []
  if ('problem' in resources) notReady.push(`The agent is out of ${resources.name}.`)
  if (!hasSession(link.state)) notReady.push('There is no link to the gateway.')
  else if (link.state === 'suspect') notReady.push('The public address does not answer.')
  if (ownEndpoint && ownEndpoint.state !== 'online') notReady.push('The agent API is not online.')
  if (tunnels.opening > 0) notReady.push(`${counted(tunnels.opening, 'tunnel')} still opening.`)
  return notReady
}

function unverifiedOf({ link, ownEndpoint }: AgentFacts): Cause[] {
  if (link.state !== 'up' || !ownEndpoint || !isUnverified(ownEndpoint)) return []
  const { domain: name, reason, remedy = '' } = ownEndpoint
  const short = VERDICT_TEXTS.unverified()
  return [{ short, problem: `this device cannot reach ${name} itself (${reason})`, remedy }]
}

function isUnverified({ state, reachable }: OwnEndpointStatus): boolean {
  return state === 'online' && reachable === 'unverified'
}

/** Whether the tunnel's problem is one of its upstream. Such problems are reported by service. */
function isUpstreamTrouble({ spec, status }: Tunnel): boolean {
  const { state, lastError, upstream, upstreamSettings } = status
  const problem = upstreamProblem(spec.forwardsTo, upstream, upstreamSettings, status)
  return state === 'online' && problem !== undefined && problem.detail === lastError
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
