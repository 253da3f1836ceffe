import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../base/duration.ts'
import type { CommandContext } from '../command-context.ts'
import { managementOptions } from '../provision/management-access.ts'
import type { DrainOptions } from './drain.ts'

/** `device-agent gateway drain`: empties one gateway of several, so that it can be stopped. */
export function drainCommand(context: CommandContext): Command {
  const command = new Command('drain')
    .description(
      'have the agents and names of one gateway go to the others of its site, so that it can be stopped',
    )
    .argument('[node]', 'its name or id; unset: the gateway that is asked')
    .option('--undo', 'have it take what comes again')
    .addOption(
      new Option('--timeout <duration>', 'how long to wait until it is empty')
        .argParser(parseTimeout)
        .default(600_000, '10m'),
    )
    .option('--json', 'one JSON line on stdout, and nothing else')
    .addHelpText(
      'after',
      '\nEnds with 0 when it is empty, with 3 when something is left after the time, with 1 when it failed or was\nstopped. It drains on in the last two cases, until --undo or its end.',
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
  throw new InvalidArgumentError('It must be a duration such as 30s, 10m or 2h.')
}
