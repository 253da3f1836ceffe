import { Command, InvalidArgumentError } from 'commander'
import { parseDuration } from '../base/duration.ts'
import type { CommandContext } from './command-context.ts'
import type { FleetOptions } from './fleet/fleet-commands.ts'

const MAX_PARALLEL = 200

/** `device-agent fleet …`: the tunnels of many devices, as one file says. */
export function fleetCommand(context: CommandContext): Command {
  const fleet = new Command('fleet').description(
    'give many devices their tunnels and policies, from one file',
  )
  // Loaded late: the other commands have no use for it.
  const commands = () => import('./fleet/fleet-commands.ts')
  const verb = (name: string, description: string) =>
    fleet
      .command(name)
      .description(description)
      .argument('<file>', 'what devices shall have, such as fleet.yaml')
      .option('--parallel <number>', 'devices under way at once', parseParallel, 16)
      .option('--json', 'one JSON line on stdout, and nothing else')
  const chosen = (command: Command) =>
    command
      .option('--device <name...>', 'only these')
      .option('--tag <tag...>', 'only devices that have all of these')
  const EXIT_CODES =
    '\nEnds with 0 when all is as it shall be, with 3 when something is left to do (also at devices that are\noffline), with 1 when something failed or was stopped, with 2 when it was called in a wrong way.'

  chosen(verb('plan', 'say what apply would change, and change nothing'))
    .addHelpText('after', EXIT_CODES)
    .action(async (file: string, options: FleetOptions) => {
      await (await commands()).bringFleet(context, file, { ...options, isApply: false })
    })
  chosen(verb('apply', 'change what differs; once more changes nothing'))
    .option(
      '--wait [duration]',
      'wait for devices that are offline, such as 10m; without a duration: for a day',
      parseWait,
    )
    .addHelpText('after', EXIT_CODES)
    .action(
      async (file: string, options: Omit<FleetOptions, 'wait'> & { wait?: number | true }) => {
        const wait = options.wait === true ? DAY_MS : options.wait
        await (await commands()).bringFleet(context, file, {
          ...options,
          wait: wait ?? 0,
          isApply: true,
        })
      },
    )
  chosen(verb('status', 'show how each device is, and whether it has what it shall have'))
    .addHelpText('after', EXIT_CODES)
    .action(async (file: string, options: FleetOptions) => {
      await (await commands()).showFleet(context, file, options)
    })
  verb('retire', 'take their tunnels from devices, and strike them from the list')
    .argument('<device...>', 'their names')
    .option('--force', 'strike also those that are offline, or refuse it')
    .action(
      async (file: string, devices: string[], options: FleetOptions & { force?: boolean }) => {
        const { force: isForced = false, ...rest } = options
        await (await commands()).retireFromFleet(context, file, devices, { ...rest, isForced })
      },
    )
  return fleet
}

const DAY_MS = 86_400_000

function parseWait(text: string): number {
  const ms = parseDuration(text)
  if (ms !== undefined && ms > 0) return ms
  throw new InvalidArgumentError('It must be a duration such as 30s, 10m or 2h.')
}

function parseParallel(text: string): number {
  const number = /^\d{1,3}$/.test(text) ? Number(text) : 0
  if (number >= 1 && number <= MAX_PARALLEL) return number
  throw new InvalidArgumentError(`It must be a number from 1 to ${MAX_PARALLEL}.`)
}
