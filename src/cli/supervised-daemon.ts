import { statusView, verdictOf } from '../api/status-view.ts'
import { tunnelStatusView } from '../api/tunnel-view.ts'
import type { OwnUpdate } from '../api/update-view.ts'
import { StartError } from '../base/app-error.ts'
import { systemClock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import type { Logger, LogTail } from '../base/logger.ts'
import type { Config } from '../config.ts'
import { type Daemon, type DaemonOptions, startDaemon } from '../daemon.ts'
import type { Finding } from './doctor/finding.ts'
import type { Served } from './serve.ts'
import { Supervision } from './service/supervision.ts'

export interface SupervisedDaemonOptions {
  readonly config: Config['agent']
  readonly version: string
  readonly neighbours?: readonly ListenAddress[]
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly log: Logger
  readonly logTail: LogTail
  readonly update?: OwnUpdate
  readonly stop: AbortSignal
}

export interface SupervisedDaemon extends Served {
  readonly address: ListenAddress
  apiToken(): string | null
  /** Resolves when the agent's own endpoint is online; throws a StartError that says why not. */
  ownEndpointOnline(withinMs: number): Promise<void>
}

/** The daemon with the service manager told how it is. */
export async function startSupervisedDaemon(
  { environment, stop, ...options }: SupervisedDaemonOptions,
  closer: Closer,
): Promise<SupervisedDaemon> {
  const { log } = options
  const supervision = await Supervision.open({ environment, stop, log }, closer)
  const examine: DaemonOptions['examine'] = (agent, database) =>
    examineFromInside(options, agent, database, stop)
  const daemon = await startDaemon({ ...options, examine, clock: systemClock }, closer)
  const { agent, database } = daemon
  const sentence = () => verdictOf(agent.status(), database.report()).headline
  const onChange = (listener: () => void) => agent.onChange(listener)
  supervision.ready({ database, sentence, onChange, onSentence: verdictLog(log) }, closer)
  return {
    address: daemon.address,
    broken: daemon.broken,
    apiToken: () => daemon.apiToken?.reveal() ?? null,
    ownEndpointOnline: (withinMs) => ownEndpointOnline(daemon, withinMs, stop),
  }
}

/** A service that fails again and again must not fill the disk. */
const LOG_STEP_MS = 60_000

/** Logs the verdict when it changes, at most once a minute. */
function verdictLog(log: Logger): (verdict: string) => void {
  let logged = ''
  let loggedAt = Number.NEGATIVE_INFINITY
  return (verdict) => {
    const now = systemClock.monotonic()
    if (verdict === logged || now - loggedAt < LOG_STEP_MS) return
    logged = verdict
    loggedAt = now
    log.info({ verdict }, 'status')
  }
}

function ownEndpointOnline({ agent }: Daemon, withinMs: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const finish = (error?: Error) => {
      clearTimeout(timer)
      off()
      stop.removeEventListener('abort', onStop)
      if (error) reject(error)
      else resolve()
    }
    const look = () => {
      if (agent.status().ownEndpoint?.state === 'online') finish()
    }
    const timer = setTimeout(() => finish(new StartError(whyNotOnline(agent))), withinMs)
    const onStop = () => finish(new StartError('Stopped before the start was complete.'))
    const off = agent.onChange(look)
    stop.addEventListener('abort', onStop, { once: true })
    look()
  })
}

function whyNotOnline(agent: Daemon['agent']): string {
  const { verdict, ownEndpoint } = agent.status()
  return `The agent API did not come online at AGENT_DOMAIN: ${ownEndpoint?.lastError ?? verdict}`
}

/** Runs the checks of `doctor` with the settings of this process. */
async function examineFromInside(
  { config, update }: Pick<SupervisedDaemonOptions, 'config' | 'update'>,
  agent: Daemon['agent'],
  database: Daemon['database'],
  stop: AbortSignal,
): Promise<readonly Finding[]> {
  const { chainChecks } = await import('./doctor/chain.ts')
  const { good } = await import('./doctor/finding.ts')
  const seen = {
    status: statusView(agent.status(), database.report(), update?.report()),
    tunnels: agent.list().map((it) => tunnelStatusView(it, agent.policyInForce(it))),
  }
  const findings: Finding[] = [good('settings', 'settings of the running agent')]
  for await (const some of chainChecks(config, seen, stop)) findings.push(...some)
  return findings
}
