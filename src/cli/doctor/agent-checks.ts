import type { LookupFunction } from 'node:net'
import * as z from 'zod'
import {
  authorityOf,
  type ForwardTarget,
  parseForwardTarget,
} from '../../agent/upstreams/forward-target.ts'
import { speaksTls } from '../../agent/upstreams/upstream-check.ts'
import {
  connectUpstream,
  HandshakeError,
  UnresolvedError,
} from '../../agent/upstreams/upstream-connection.ts'
import { requestStatus } from '../../agent/upstreams/upstream-request.ts'
import { EXTRA_CA, unresolvedProblem } from '../../agent/upstreams/upstream-state.ts'
import { causeIn } from '../../agent/verdict.ts'
import { StatusView } from '../../api/status-view.ts'
import { TunnelStatusView } from '../../api/tunnel-view.ts'
import { StartError } from '../../base/app-error.ts'
import { abortedAfter } from '../../base/deadline.ts'
import { hostsFileHasLocalhost, localhostLookup } from '../../base/listen-address.ts'
import { encodeProxyProtocol } from '../../base/net/proxy-protocol.ts'
import type { CommandContext } from '../command-context.ts'
import { commandRemedy } from '../local/command-remedy.ts'
import { LocalAgent, NO_ACCESS, ReadOnlyError } from '../local/local-agent.ts'
import { tunnelIn } from '../local/status-text.ts'
import {
  adviceText,
  hasAgentService,
  restartCommand,
  startCommand,
  stoppedService,
} from '../local/stopped-service.ts'
import { readVersion } from '../version.ts'
import { bad, type Finding, good, skipped } from './finding.ts'

/** Time for an answer, below the time that the tunnel allows. */
const MAX_ANSWER_MS = 15_000
const SEE_LOG = 'Check the log: device-agent logs.'

/** Answers of the running agent. */
export interface SeenAgent {
  readonly status: StatusView
  readonly tunnels: readonly TunnelStatusView[]
}

/** The agent of this device, or why it cannot be asked. */
export async function lookAtAgent(
  context: CommandContext,
  dataDir: string | undefined,
): Promise<SeenAgent | StartError> {
  try {
    const agent = LocalAgent.find(context, dataDir)
    const status = await agent.ask({ path: '/status' }, StatusView)
    const tunnels = await agent.ask({ path: '/tunnels?view=status' }, z.array(TunnelStatusView))
    return { status, tunnels }
  } catch (error) {
    if (error instanceof StartError) return error
    throw error
  }
}

/** Checks that need the agent, and one real request to each upstream. */
export async function agentChecks(seen: SeenAgent | StartError): Promise<Finding[]> {
  if (seen instanceof StartError) {
    return [
      notRunning(seen),
      ...['link', 'tunnels', 'upstreams', 'update'].map((check) =>
        skipped(check, 'skipped, the agent is not available'),
      ),
    ]
  }
  const { status, tunnels } = seen
  const targets = new Map(
    tunnels.map((it) => {
      const { protocol, forwards_to: to, upstream_settings: settings } = it
      const { http2, proxy_protocol: version, verify_tls: verifyTls, tls_min_version } = settings
      return [[protocol, to, http2, version, verifyTls, tls_min_version].join(' '), it]
    }),
  )
  const findings = [
    good('agent', `running, version ${status.versions.agent}`),
    ...storage(status),
    link(status),
    ...ownDomain(status),
    ...tunnels.map(tunnel),
    ...(await Promise.all([...targets.values()].map(upstream))),
    update(status),
  ]
  return [...findings, ...others(seen, findings)]
}

function notRunning(error: StartError): Finding {
  const check = 'agent'
  const { message } = error
  if (error instanceof ReadOnlyError) {
    return bad(check, error.advice.problem, error.advice.remedy)
  }
  if (message === NO_ACCESS) return bad(check, message, 'Run this command with sudo.')
  const stopped = stoppedService()
  return stopped && message === adviceText(stopped)
    ? bad(check, stopped.problem, stopped.remedy)
    : bad(check, message, startOf(message))
}

/** The command of the message. Without one, that of the service, if there is one. */
function startOf(message: string): string {
  const [, given] = /\bStart it \((.+?)\)/.exec(message) ?? []
  const command = given ?? startCommand(hasAgentService())
  const log = command.startsWith('systemctl') ? 'check device-agent logs' : 'read its output'
  return `Start the agent: ${command}. If it stops again, ${log}.`
}

/** What the status says beside the checks. On a healthy device these are notes. */
function others({ status, tunnels }: SeenAgent, findings: readonly Finding[]): Finding[] {
  if (findings.some(({ outcome }) => outcome === 'bad')) return []
  const notes = new Set(findings.map(({ remedy }) => remedy))
  const untold = status.advice.filter(({ remedy }) => !status.healthy || !notes.has(remedy))
  return untold.map((advice) => ({
    check: 'status',
    outcome: status.healthy ? 'good' : 'bad',
    detail: advice.problem,
    remedy: commandRemedy(advice.remedy, tunnelIn(advice, tunnels)),
  }))
}

/** After an update, the version on disk may be newer than that of the running agent. */
function update({ versions: { agent }, update: last, link: { state } }: StatusView): Finding {
  const check = 'update'
  if (last?.state === 'rolled-back') {
    const remedy = 'Correct this cause and repeat device-agent update, or install a newer version.'
    // The report stays until the next update, so it is only a note for an agent that works again.
    return { ...bad(check, last.sentence, remedy), outcome: state === 'up' ? 'good' : 'bad' }
  }
  if (last !== null && last.state !== 'confirmed') return skipped(check, last.sentence)
  const installed = readVersion()
  if (installed === agent) return good(check, `${agent} is installed and running`)
  const flaw = `${installed} is installed, but ${agent} is running`
  return bad(check, flaw, `Restart the agent: ${restartCommand(hasAgentService())}.`)
}

function storage({ storage: { problem, unconfirmed } }: StatusView): Finding[] {
  const check = 'storage'
  if (problem !== null) {
    const cause = causeIn(problem)
    return [bad(check, cause.problem, cause.remedy)]
  }
  if (unconfirmed.length === 0) return [good(check, 'sound')]
  const then = 'then run device-agent storage confirm.'
  if (unconfirmed.some(({ copy, found_at: at }) => copy === 'none' && Date.parse(at) > 0)) {
    const remedy = `Restore a backup with device-agent restore FILE, or create tunnels and tokens again, ${then}`
    return [
      bad(check, 'the database was damaged, and no backup was found: all data is lost', remedy),
    ]
  }
  const remedy = `Create missing tunnels and tokens again, ${then}`
  return [bad(check, 'the database was damaged, data may be missing', remedy)]
}

function link({ link: { state, last_error: error, remedy, latency_ms: ms } }: StatusView): Finding {
  if (state === 'up') return good('link', ms === null ? 'up' : `up, ${Math.round(ms)} ms`)
  return bad('link', `${state}: ${error ?? 'no reason known yet'}`, remedy ?? SEE_LOG)
}

function ownDomain({ own_endpoint: own, link }: StatusView): Finding[] {
  if (!own) return []
  const check = `own domain ${own.domain}`
  if (own.state === 'online' && own.reachable !== 'no')
    return [{ ...good(check, ''), ...reach(own) }]
  if (own.remedy === null && link.state !== 'up' && link.remedy !== null)
    return [bad(check, `${own.state}: ${link.last_error ?? 'no link'}`, link.remedy)]
  return [bad(check, own.last_error ?? own.reason ?? own.state, own.remedy ?? SEE_LOG)]
}

type Own = NonNullable<StatusView['own_endpoint']>

/** A domain that was not reached may work, so it is a note. */
function reach({ reachable, last_error: error, remedy }: Own): Pick<Finding, 'detail' | 'remedy'> {
  if (reachable === 'yes') return { detail: 'reachable: yes', remedy: null }
  const unknown = 'reachable: not known'
  if (reachable === 'unverified') {
    return { detail: `${unknown}, this device cannot check it: ${error ?? 'no answer'}`, remedy }
  }
  const detail = `${unknown}, the first check is not complete`
  return { detail, remedy: 'Repeat this check in 30 s.' }
}

function tunnel({ url_part, state, last_error: error, reason, remedy }: TunnelStatusView): Finding {
  const check = `tunnel ${url_part}`
  if (state === 'online') return good(check, 'online')
  const advice = remedy === null ? SEE_LOG : commandRemedy(remedy, url_part)
  return bad(check, `${state}: ${error ?? reason ?? 'no reason known yet'}`, advice)
}

/** Any response counts: its content matters only to visitors. */
async function upstream(tunnel: TunnelStatusView): Promise<Finding> {
  const { protocol, forwards_to: forwardsTo, upstream_settings: settings } = tunnel
  const check = `upstream ${forwardsTo}`
  const set = `device-agent tunnels set ${tunnel.url_part}`
  const target = parseForwardTarget(forwardsTo)
  if (!target) return skipped(check, 'unknown kind of upstream')
  const { verify_tls: verifyTls, tls_min_version: tlsMinVersion, http2 } = settings
  const { proxy_protocol: version } = settings
  const preface = version && encodeProxyProtocol(version, undefined)
  const wish = { ...lookupOf(target), verifyTls, tlsMinVersion, http2, preface }
  const startedAt = performance.now()
  const answerMs = Math.min(settings.timeout * 1_000, MAX_ANSWER_MS)
  let isConnected = false
  try {
    const status = await abortedAfter(answerMs, new AbortController().signal, async (signal) => {
      const socket = await connectUpstream(target, { ...wish, signal })
      isConnected = true
      signal.addEventListener('abort', () => socket.destroy())
      const question = { method: 'GET', path: '/', http2, authority: authorityOf(target) } as const
      const asked = protocol === 'http' ? requestStatus(socket, question) : undefined
      return Promise.resolve(asked)
        .finally(() => socket.destroy())
        .catch((error) => {
          throw signal.aborted ? signal.reason : error
        })
    })
    const afterMs = Math.round(performance.now() - startedAt)
    return good(
      check,
      status === undefined ? 'accepts connections' : `answers ${status} after ${afterMs} ms`,
    )
  } catch (error) {
    if (error instanceof UnresolvedError) {
      const { detail, remedy } = unresolvedProblem(forwardsTo)
      return bad(check, detail, remedy)
    }
    // This program does not have the environment of the agent.
    const isUntrusted = error instanceof HandshakeError && error.kind === 'untrusted'
    if (isUntrusted && tunnel.upstream === 'up') return good(check, 'the agent trusts it')
    const isHttp = protocol === 'http' && isConnected && !isTimeout(error)
    if (isHttp && (await speaksTls(target, lookupOf(target).lookup))) {
      const flaw = 'wrong protocol: the service speaks TLS, and the tunnel forwards plain HTTP'
      return bad(check, flaw, `Run ${set} https://${forwardsTo}.`)
    }
    if (isTimeout(error)) {
      return silent({ check, set }, isConnected, answerMs, settings.timeout)
    }
    return unreachable({ check, set }, error as Error, isConnected)
  }
}

/** An upstream under its check, and the command that changes its tunnel. */
interface Asked {
  readonly check: string
  readonly set: string
}

function silent(
  { check, set }: Asked,
  isConnected: boolean,
  ms: number,
  timeoutS: number,
): Finding {
  const within = `within ${ms / 1_000} s`
  if (!isConnected) {
    const remedy =
      'Check that its device is on and in this network, and that no firewall drops the connection.'
    return bad(check, `accepts no connection ${within}`, remedy)
  }
  const remedy = `Restart the service if it hangs. If its answers take longer than ${timeoutS} s, run ${set} --upstream-timeout SECONDS.`
  return bad(check, `accepts the connection, but does not answer ${within}`, remedy)
}

const isTimeout = (error: unknown): boolean =>
  error instanceof Error &&
  [error, error.cause].some((it) => it instanceof DOMException && it.name === 'TimeoutError')

/** As the agent finds it. */
function lookupOf(target: ForwardTarget): { lookup?: LookupFunction } {
  const isLocalhost = 'host' in target && target.host === 'localhost'
  return isLocalhost && !hostsFileHasLocalhost() ? { lookup: localhostLookup } : {}
}

/** Node trusts the certificate, and the name is its only flaw. */
const isNameError = ({ cause }: Error) =>
  (cause as NodeJS.ErrnoException).code === 'ERR_TLS_CERT_ALTNAME_INVALID'

const NO_HTTP = /^(HPE_|ERR_HTTP2_)/

function unreachable(
  { check, set }: Asked,
  error: NodeJS.ErrnoException,
  isConnected: boolean,
): Finding {
  if (error instanceof HandshakeError) {
    if (error.kind === 'old-tls') {
      const remedy = `Update the service, or run ${set} --tls-min-version 1.0.`
      return bad(check, `its TLS is too old: ${error.message}`, remedy)
    }
    if (error.kind === 'other') {
      const detail = `the upstream does not use TLS: ${error.message}`
      const remedy = `Run ${set} with the address without https://, or check the certificate and key of the service.`
      return bad(check, detail, remedy)
    }
    const less = `Less secure: run ${set} --no-verify-tls.`
    if (error.otherNames !== undefined) {
      const detail = `its certificate is for another name: ${error.otherNames}`
      const remedy = `Install a certificate for the name in the address, or run ${set} with a name of the certificate. ${less}`
      return bad(check, isNameError(error) ? detail : `${detail} (${error.message})`, remedy)
    }
    const remedy = `${EXTRA_CA} Or replace the certificate. ${less}`
    return bad(check, `its certificate is not trusted: ${error.message}`, remedy)
  }
  const { code = '', message } = error
  if (NO_HTTP.test(code)) {
    const detail = 'the upstream does not answer with HTTP'
    const remedy = `Run ${set} PORT with the port of the web service, or use a tcp or tls tunnel.`
    const ofGrpc = code.startsWith('HPE_') ? ` For gRPC, run ${set} --http2.` : ''
    return bad(check, detail, `${remedy}${ofGrpc}`)
  }
  if (isConnected) {
    const remedy = `Check the log of the service, or run ${set} PORT with the port of the web service.`
    return bad(check, 'closes the connection without an answer', remedy)
  }
  const reason =
    code === 'ECONNREFUSED' || code === 'ENOENT'
      ? 'connection refused, nothing is listening'
      : message
  return bad(check, reason, `Start the service, or run ${set} PORT with the port that it uses.`)
}
