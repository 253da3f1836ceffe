import { existsSync, readFileSync, statSync } from 'node:fs'
import {
  authtokenLack,
  CREDENTIAL,
  isAuthtoken,
  PASSED_AUTHTOKEN,
} from '../../agent/authtoken-source.ts'
import { type Advice, sentence } from '../../agent/verdict.ts'
import type { StatusView } from '../../api/status-view.ts'
import type { TunnelStatusView } from '../../api/tunnel-view.ts'

const LACK = authtokenLack(undefined, undefined).detail
/** In the headline, which has no room for a path. */
const SHORT = 'systemd did not pass the authtoken'

const RESTART = 'sudo systemctl restart device-agent'

/** The parts of a status that show a missing authtoken. */
interface LinkAnswer {
  readonly link: Pick<StatusView['link'], 'last_error'>
  readonly started_at: string
}

/** Answers of the running agent. */
interface Answers {
  readonly status: StatusView
  readonly tunnels: readonly TunnelStatusView[]
}

/**
 * Returns the problem of an agent without an authtoken whose file has one. Only root can read the file of the
 * service, so the agent itself cannot know.
 */
export function unpassedCredential(
  { link, started_at: startedAt }: LinkAnswer,
  file: string | undefined,
): Advice | undefined {
  if (link.last_error !== LACK || file === undefined || !hasAuthtoken(file)) return undefined
  if (!CREDENTIAL.test(file)) {
    return { problem: `the running agent does not use ${file}`, remedy: 'Restart the agent.' }
  }
  const problem = `systemd did not pass the credential ${file} to the agent`
  if (statSync(file).ctimeMs > Date.parse(startedAt)) {
    return { problem, remedy: `Restart the service: ${RESTART}.` }
  }
  const remedy = `Set SVC_AUTHTOKEN in /etc/device-agent/agent.env to the authtoken of this file, then run ${RESTART}. In some containers, systemd passes no credentials.`
  return { problem, remedy }
}

/** Returns the answers with that problem in place of a missing authtoken. */
export function withCredential(seen: Answers, file: string | undefined): Answers {
  const cause = unpassedCredential(seen.status, file)
  if (!cause) return seen
  const { problem, remedy } = cause
  const { status, tunnels } = seen
  const [old, text] = [sentence(LACK), sentence(problem, 'systemd')]
  const short = problem.startsWith('systemd') ? sentence(SHORT, 'systemd') : old
  const shown = { last_error: problem, remedy }
  return {
    status: {
      ...status,
      link: { ...status.link, ...shown },
      verdict: status.verdict.replace(old, short),
      advice: status.advice.map((it) => (it.problem === old ? { problem: text, remedy } : it)),
    },
    tunnels: tunnels.map((it) => (it.last_error === LACK ? { ...it, ...shown } : it)),
  }
}

/** Returns the status line of the service with that problem in place of a missing authtoken. */
export function lineWithCredential(line: string, file: string): string {
  const lack = sentence(LACK)
  if (!line.includes(lack) || !hasAuthtoken(file)) return line
  return line.replace(lack, `${sentence(SHORT, 'systemd')} See sudo device-agent status.`)
}

/** Whether the running service gets this file. Other programs read their file themselves. */
export function isPassed(file: string): boolean {
  return !CREDENTIAL.test(file) || existsSync(PASSED_AUTHTOKEN)
}

function hasAuthtoken(file: string): boolean {
  try {
    return isAuthtoken(readFileSync(file, 'utf8').trim())
  } catch {
    return false
  }
}
