import { isatty } from 'node:tty'
import { Command } from 'commander'
import { systemClock } from '../base/clock.ts'
import { packageRoot } from '../base/file.ts'
import { type Logger, LogTail } from '../base/logger.ts'
import { type Config, parseConfig } from '../config.ts'
import type { CommandContext } from './command-context.ts'
import { checkFirstStart } from './first-start.ts'
import { localAddress } from './local-address.ts'
import { openProcessLog } from './process-log.ts'
import { serve } from './serve.ts'
import { OwnTrial } from './update/own-trial.ts'
import { monotonicMs, UpdateHome } from './update/update-home.ts'
import { readVersion } from './version.ts'

/** SIGHUP comes from old units, and from people who know it from other services. */
const RELOAD_IGNORED = 'SIGHUP ignored, the agent has no reload; use systemctl restart device-agent'

/** `device-agent run`: the daemon, as a service manager starts it. */
export function runCommand(context: CommandContext): Command {
  return new Command('run')
    .description('run the agent in the foreground, as the systemd service does')
    .option('--json', 'print one JSON line with the API address when ready')
    .addHelpText(
      'after',
      '\nThe gateway holds requests while the agent restarts. SIGHUP is ignored. In a terminal, SIGHUP stops\nthe agent.',
    )
    .action(async ({ json = false }: { json?: boolean }) => {
      const { stdout, stop, onReload = () => {} } = context
      const given = parseConfig(context.environment)
      const logTail = new LogTail()
      const log = openProcessLog(context, given.logLevel, { tail: logTail })
      const { dataDir, listen } = given.agent
      await checkFirstStart(dataDir, [
        { listen, setting: 'AGENT_LISTEN', failure: 'The agent API cannot listen' },
      ])
      const environment = await joinedEnvironment(context, given.agent, log)
      const config = parseConfig(environment)
      // Loaded late: --help and a mistaken setting must not wait for the SDK.
      const { startSupervisedDaemon } = await import('./supervised-daemon.ts')
      const trial = new OwnTrial({
        home: new UpdateHome(),
        programRoot: packageRoot(),
        now: monotonicMs,
        clock: systemClock,
        log,
      })
      await serve({
        log,
        stop,
        drainMs: config.agent.drainMs,
        start: async (closer) => {
          const version = readVersion()
          if (!isInTerminal()) onReload(() => log.warn(RELOAD_IGNORED))
          const daemon = await startSupervisedDaemon(
            {
              ...{ config: config.agent, version, environment },
              ...{ log, logTail, stop, update: trial },
            },
            closer,
          )
          closer.own('trial', trial, (it) => it.stop()).start()
          const ready = { agent_api: `http://${localAddress(daemon.address)}` }
          if (json) stdout.write(`${JSON.stringify(ready)}\n`)
          log.info(ready, 'agent is up')
          return { ...daemon, broken: Promise.race([daemon.broken, trial.overdue]) }
        },
      })
    })
}

/** The settings of this process, after a join if SVC_JOIN_FILE asks for one. */
async function joinedEnvironment(
  { environment, stop }: CommandContext,
  config: Config['agent'],
  log: Logger,
): Promise<CommandContext['environment']> {
  if (config.joinFile === undefined) return environment
  const { joinFromFile } = await import('./join/join-file.ts')
  return joinFromFile({ config, environment, log, stop })
}

/** There, a SIGHUP says that the terminal was closed. */
const isInTerminal = () => isatty(0) || isatty(2)
