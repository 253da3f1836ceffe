import { request } from 'node:http'
import { connect, type LookupFunction } from 'node:net'
import * as z from 'zod'
import { type ForwardTarget, parseForwardTarget } from '../../agent/upstreams/forward-target.ts'
import { StatusView } from '../../api/status-view.ts'
import { TunnelStatusView } from '../../api/tunnel-view.ts'
import { StartError } from '../../base/app-error.ts'
import { hostsFileHasLocalhost, localhostLookup } from '../../base/net/localhost.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from '../local/local-agent.ts'
import { readVersion } from '../version.ts'
import { bad, type Finding, good, skipped } from './finding.ts'

const ANSWER_MS = 3_000
const SILENT = `no answer within ${ANSWER_MS / 1_000} s`
const SEE_LOG = 'Look into its log: journalctl -u device-agent.'

/** What the running agent says of itself. */
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

/** What only the agent knows, and each upstream by a real answer. */
export async function agentChecks(seen: SeenAgent | StartError): Promise<Finding[]> {
  if (seen instanceof StartError) {
    return [
      bad('agent', seen.message, 'Start it, and look into its log when it ends again.'),
      ...['link', 'tunnels', 'upstreams', 'update'].map((check) =>
        skipped(check, 'the agent would know'),
      ),
    ]
  }
  const { status, tunnels } = seen
  const targets = new Map(tunnels.map((it) => [`${it.protocol} ${it.forwards_to}`, it]))
  return [
    good('agent', `runs, version ${status.versions.agent}`),
    ...storage(status),
    link(status),
    ...ownDomain(status),
    ...tunnels.map(tunnel),
    ...(await Promise.all([...targets.values()].map(upstream))),
    update(status),
  ]
}

/** What lies on the disk is newer where somebody has updated it, and the agent still runs as it began. */
function update({ versions: { agent } }: StatusView): Finding {
  const installed = readVersion()
  if (installed === agent) return good('update', `${agent} is installed, and runs`)
  const flaw = `${installed} is installed, and ${agent} runs`
  return bad('update', flaw, 'Restart the agent: systemctl restart device-agent.')
}

function storage({ storage: { problem, unconfirmed } }: StatusView): Finding[] {
  const check = 'storage'
  if (problem !== null) return [bad(check, problem, SEE_LOG)]
  if (unconfirmed.length === 0) return [good(check, 'sound')]
  const remedy =
    'Add what is missing, then say that you have seen it: device-agent storage confirm.'
  return [bad(check, 'it was damaged, and something may be missing', remedy)]
}

function link({ link: { state, last_error: error, remedy, latency_ms: ms } }: StatusView): Finding {
  if (state === 'up') return good('link', ms === null ? 'up' : `up, ${Math.round(ms)} ms`)
  return bad('link', `${state}: ${error ?? 'no reason yet'}`, remedy ?? SEE_LOG)
}

function ownDomain({ own_endpoint: own }: StatusView): Finding[] {
  if (!own) return []
  const check = `own domain ${own.domain}`
  if (own.state === 'online' && own.reachable !== 'no')
    return [good(check, `reachable: ${own.reachable}`)]
  return [bad(check, own.last_error ?? own.reason ?? own.state, own.remedy ?? SEE_LOG)]
}

function tunnel({ domain, state, last_error: error, reason, remedy }: TunnelStatusView): Finding {
  const check = `tunnel ${domain}`
  if (state === 'online') return good(check, 'online')
  return bad(check, `${state}: ${error ?? reason ?? 'no reason yet'}`, remedy ?? SEE_LOG)
}

/** Any answer will do: what it says is between the service and its visitors. */
function upstream({ protocol, forwards_to: forwardsTo }: TunnelStatusView): Promise<Finding> {
  const check = `upstream ${forwardsTo}`
  const target = parseForwardTarget(forwardsTo)
  if (!target) return Promise.resolve(skipped(check, 'of a kind that this program does not know'))
  return protocol === 'http' ? askHttp(check, target) : askTcp(check, target)
}

function askTcp(check: string, target: ForwardTarget): Promise<Finding> {
  return new Promise((resolve) => {
    const socket = connect({ ...target, ...lookupOf(target), timeout: ANSWER_MS }, () => {
      resolve(good(check, 'takes connections'))
      socket.destroy()
    })
    socket.on('timeout', () => socket.destroy(new Error(SILENT)))
    socket.on('error', (error) => resolve(unreachable(check, error)))
  })
}

function askHttp(check: string, target: ForwardTarget): Promise<Finding> {
  return new Promise((resolve) => {
    const startedAt = performance.now()
    const asked = request(
      {
        ...target,
        ...lookupOf(target),
        path: '/',
        headers: { 'user-agent': 'device-agent doctor' },
        timeout: ANSWER_MS,
      },
      ({ statusCode }) => {
        resolve(
          good(
            check,
            `answers ${statusCode} after ${Math.round(performance.now() - startedAt)} ms`,
          ),
        )
        asked.destroy()
      },
    )
    asked.on('timeout', () => asked.destroy(new Error(SILENT)))
    asked.on('error', (error) => resolve(unreachable(check, error)))
    asked.end()
  })
}

/** As the agent finds it. */
function lookupOf({ host }: ForwardTarget): { lookup?: LookupFunction } {
  return host === 'localhost' && !hostsFileHasLocalhost() ? { lookup: localhostLookup } : {}
}

function unreachable(check: string, { code = '', message }: NodeJS.ErrnoException): Finding {
  if (code.startsWith('HPE_')) {
    const detail = 'what listens there speaks no HTTP'
    return bad(check, detail, 'Name the port of the web service, or make it a tcp or tls tunnel.')
  }
  const detail = code === 'ECONNREFUSED' ? 'nothing listens there' : message
  return bad(check, detail, 'Start the service behind the tunnel, or name its port.')
}
