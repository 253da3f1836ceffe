import { isatty } from 'node:tty'
import { Command } from 'commander'
import { systemClock } from '../base/clock.ts'
import { LogTail } from '../base/log/log-tail.ts'
import { InheritedSockets } from '../base/net/inherited-sockets.ts'
import { packageRoot } from '../base/package-root.ts'
import { type Config, parseConfig } from '../config.ts'
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
    .description('run the agent in the foreground, as the systemd service does')
    .option('--json', 'print one JSON line with the API address when ready')
    .addHelpText(
      'after',
      '\nSIGHUP (systemctl reload device-agent) starts the installed version without downtime. The old process\nends after its open requests. In a terminal, SIGHUP stops the agent.',
    )
    .action(async ({ json = false }: { json?: boolean }) => {
      const { environment, stdout, stop, predecessor, inherited, onReload = () => {} } = context
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
        collectsWhenIdle: true,
        start: async (closer) => {
          const version = readVersion()
          const agent = claimSockets(config.agent, context.sockets)
          const daemon = await startSupervisedDaemon(
            {
              ...{ config: agent, version, environment, inherited, predecessor },
              ...{ log, logTail, stop, update: trial },
            },
            closer,
          )
          if (!isInTerminal()) onReload(() => void daemon.reload.request())
          closer.own('trial', trial, (it) => it.stop()).start()
          const ready = { agent_api: `http://${localAddress(daemon.address)}` }
          if (json) stdout.write(`${JSON.stringify(ready)}\n`)
          log.info(ready, 'agent is up')
          if (predecessor) {
            await predecessor.serving()
            await daemon.begin()
          }
          return {
            ...daemon,
            broken: Promise.race([daemon.broken, trial.overdue]),
            left: daemon.reload.left,
            bereft: daemon.reload.bereft,
          }
        },
      })
    })
}

/** There, a SIGHUP says that the terminal was closed. */
const isInTerminal = () => isatty(0) || isatty(2)

/** The settings with the sockets of the process whose place this one takes. */
function claimSockets(
  config: Config['agent'],
  sockets: InheritedSockets = new InheritedSockets(),
): Config['agent'] {
  const { listen, pageListen } = config
  const claimed = {
    ...config,
    listen: sockets.claimAnyPort(listen),
    pageListen: pageListen && sockets.claimAnyPort(pageListen),
  }
  // It listens elsewhere now.
  sockets.closeRest()
  return claimed
}
