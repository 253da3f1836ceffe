import { Command, InvalidArgumentError, Option } from 'commander'
import type { CommandContext } from '../command-context.ts'
import type { JoinOptions } from './join-device.ts'
import type { LeaveOptions } from './leave-gateway.ts'

const MAX_WAIT_S = 3_600

/** `device-agent join`: from one line of a gateway to a connected device. */
export function joinCommand(context: CommandContext): Command {
  return (
    new Command('join')
      .description(
        'connect this device to a gateway, with a join string of device-agent gateway invite',
      )
      // Several, because a pasted string may be broken over lines.
      .argument(
        '[join-string...]',
        'the join string; - or nothing: standard input, or a question on a terminal',
      )
      .option(
        '--name <name>',
        'name of this device, if the invitation leaves it open; default: the host name',
      )
      .option('--replace', 'leave the gateway that this device belongs to')
      .addOption(
        new Option('--wait <seconds>', 'time to wait for the connection; 0: do not wait')
          .default(60)
          .argParser(seconds),
      )
      .option('--dry-run', 'show the changes without making them')
      .option('--json', 'print one JSON line on stdout')
      .addHelpText(
        'after',
        `
With the Debian package or another installed service, this command needs sudo. It writes the settings,
restarts the service and waits for the connection. Elsewhere it writes .env into the current directory.
An argument shows in the list of processes: prefer standard input.`,
      )
      .action(async (words: readonly string[], options: JoinOptions) => {
        const { joinDevice } = await import('./join-device.ts')
        await joinDevice(context, words, options)
      })
  )
}

/** `device-agent leave`: undoes a join. */
export function leaveCommand(context: CommandContext): Command {
  return new Command('leave')
    .description(
      'disconnect this device from its gateway: stop the service, remove authtoken and address',
    )
    .option('--yes', 'do not ask')
    .option('--purge', 'also delete all data of the agent: tunnels, tokens and identity')
    .option('--json', 'print one JSON line on stdout')
    .action(async (options: LeaveOptions) => {
      const { leaveGateway } = await import('./leave-gateway.ts')
      await leaveGateway(context, options)
    })
}

function seconds(text: string): number {
  const value = Number(text)
  if (/^\d+$/.test(text) && value <= MAX_WAIT_S) return value
  throw new InvalidArgumentError(`Use a number of seconds from 0 to ${MAX_WAIT_S}.`)
}
