import { Command } from 'commander'
import { systemClock } from '../base/clock.ts'
import { LogTail } from '../base/log/log-tail.ts'
import { packageRoot } from '../base/package-root.ts'
import { parseConfig } from '../config.ts'
import type { CommandContext } from './command-context.ts'
import { localAddress } from './local-address.ts'
import { openProcessLog } from './process-log.ts'
import { serve } from './serve.ts'
import { OwnTrial } from './update/own-trial.ts'
import { monotonicMs, UpdateHome } from './update/update-home.ts'
import { readVersion } from './version.ts'

/** `device-agent run`: the daemon, as a service manager starts it. */
export function runCommand(context: CommandContext): Command {
  return new Command('run')
    .description('run the agent in the foreground, as systemd does')
    .option('--json', 'print one JSON line with the address of the API when it listens')
    .action(async ({ json = false }: { json?: boolean }) => {
      const { environment, stdout, stop } = context
      const config = parseConfig(environment)
      const logTail = new LogTail()
      const log = openProcessLog(context, config.logLevel, { tail: logTail })
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
          const daemon = await startSupervisedDaemon(
            { config: config.agent, version, environment, log, logTail, stop, update: trial },
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
