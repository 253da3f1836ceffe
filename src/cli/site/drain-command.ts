import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../base/clock.ts'
import type { CommandContext } from '../command-context.ts'
import { managementOptions } from '../provision/management-access.ts'
import type { DrainOptions } from './drain.ts'

/** `device-agent gateway drain`: empties one gateway of several, so that it can be stopped. */
export function drainCommand(context: CommandContext): Command {
  const command = new Command('drain')
    .description('move all agents and names of a gateway to the other gateways, before a stop')
    .argument('[node]', 'name or id of the gateway; default: the gateway behind --api-url')
    .option('--undo', 'cancel the drain, accept connections again')
    .addOption(
      new Option('--timeout <duration>', 'maximum time to wait until the gateway is empty')
        .argParser(parseTimeout)
        .default(600_000, '10m'),
    )
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      '\nExit codes:\n  0  the gateway is empty\n  1  failed or stopped\n  3  connections are left after the timeout\nAfter exit code 1 or 3 the drain continues until --undo or a stop of the gateway.',
    )
  for (const option of managementOptions()) command.addOption(option)
  return command.action(async (name: string | undefined, _options: object, self: Command) => {
    // The command above it knows --json, too, and takes it.
    const options = self.optsWithGlobals<DrainOptions>()
    // Loaded late: the other commands have no use for it.
    const { drain } = await import('./drain.ts')
    await drain(context, name, options)
  })
}

function parseTimeout(text: string): number {
  const ms = parseDuration(text)
  if (ms !== undefined && ms > 0) return ms
  throw new InvalidArgumentError('Use a duration such as 30s, 10m or 2h.')
}
