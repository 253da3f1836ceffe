import { request } from 'node:http'
import * as z from 'zod'
import { parseForwardTarget } from '../../agent/upstreams/forward-target.ts'
import { StatusView } from '../../api/status-view.ts'
import { TunnelStatusView } from '../../api/tunnel-view.ts'
import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from '../local/local-agent.ts'
import { bad, type Finding, good, skipped } from './finding.ts'

const ANSWER_MS = 3_000
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
      ...['link', 'tunnels', 'upstreams'].map((check) => skipped(check, 'the agent would know')),
    ]
  }
  const { status, tunnels } = seen
  const targets = new Set(tunnels.map((it) => it.forwards_to))
  return [
    good('agent', `runs, version ${status.versions.agent}`),
    ...storage(status),
    link(status),
    ...ownDomain(status),
    ...tunnels.map(tunnel),
    ...(await Promise.all([...targets].map(upstream))),
  ]
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

/** Any answer of HTTP will do: what it says is between the service and its visitors. */
function upstream(forwardsTo: string): Promise<Finding> {
  const check = `upstream ${forwardsTo}`
  const target = parseForwardTarget(forwardsTo)
  if (!target) return Promise.resolve(skipped(check, 'not an HTTP service'))
  return new Promise((resolve) => {
    const startedAt = performance.now()
    const asked = request(
      {
        ...target,
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
    asked.on('timeout', () => asked.destroy(new Error(`no answer within ${ANSWER_MS / 1_000} s`)))
    asked.on('error', (error: NodeJS.ErrnoException) => {
      const isRefused = error.code === 'ECONNREFUSED'
      const isGarbage = error.code?.startsWith('HPE_') ?? false
      const detail = isRefused
        ? 'nothing listens there'
        : isGarbage
          ? 'what listens there speaks no HTTP'
          : error.message
      const remedy = isGarbage
        ? 'Name the port of the web service.'
        : 'Start the service behind the tunnel, or name its port.'
      resolve(bad(check, detail, remedy))
    })
    asked.end()
  })
}
