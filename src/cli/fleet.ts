import { Command, InvalidArgumentError } from 'commander'
import { parseDuration } from '../base/clock.ts'
import type { CommandContext } from './command-context.ts'
import type { FleetOptions } from './fleet/fleet-commands.ts'
import { managementOptions } from './provision/management-access.ts'

const MAX_PARALLEL = 200

/** `device-agent fleet …`: the tunnels of many devices, as one file says. */
export function fleetCommand(context: CommandContext): Command {
  const fleet = new Command('fleet').description(
    'manage tunnels and policies of many devices from one file',
  )
  // Loaded late: the other commands have no use for it.
  const commands = () => import('./fleet/fleet-commands.ts')
  const verb = (name: string, description: string) =>
    fleet
      .command(name)
      .description(description)
      .argument('<file>', 'fleet file, such as fleet.yaml')
      .option(
        '--parallel <number>',
        'number of devices to process at the same time',
        parseParallel,
        16,
      )
      .option('--json', 'print one JSON line on stdout')
  const chosen = (command: Command) => {
    command
      .option('--device <name...>', 'only devices with these names')
      .option('--tag <tag...>', 'only devices that have all of these tags')
      .option('--all', 'show each device by itself, without limits')
    for (const option of managementOptions()) command.addOption(option)
    return command
  }
  const EXIT_CODES =
    '\nExit codes:\n  0  every device matches the file\n  1  failed or stopped, or the file is wrong\n  2  wrong usage\n  3  changes are left, or devices are offline\n  4  devices are in no set; all other devices match the file'

  chosen(verb('plan', 'show the changes that apply would make'))
    .addHelpText('after', EXIT_CODES)
    .action(async (file: string, options: FleetOptions) => {
      await (await commands()).bringFleet(context, file, { ...options, isApply: false })
    })
  chosen(verb('apply', 'make every device match the file'))
    .option(
      '--wait [duration]',
      'wait for offline devices, such as 10m; default without a duration: 1 day',
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
  chosen(verb('status', 'show the status of each device and whether it matches the file'))
    .addHelpText('after', EXIT_CODES)
    .action(async (file: string, options: FleetOptions) => {
      await (await commands()).showFleet(context, file, options)
    })
  verb('retire', 'delete all tunnels of devices and remove the devices from the list')
    .argument('<device...>', 'names of the devices')
    .option('--force', 'also remove devices that are offline or refuse the change')
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
  throw new InvalidArgumentError('Use a duration such as 30s, 10m or 2h.')
}

function parseParallel(text: string): number {
  const number = /^\d{1,3}$/.test(text) ? Number(text) : 0
  if (number >= 1 && number <= MAX_PARALLEL) return number
  throw new InvalidArgumentError(`Use a number from 1 to ${MAX_PARALLEL}.`)
}
