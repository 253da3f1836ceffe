import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../base/clock.ts'
import type { CommandContext } from '../command-context.ts'
import { managementOptions } from '../provision/management-access.ts'
import type { InviteOptions, InvitesOptions } from './invites.ts'

const DAY_MS = 86_400_000

/** `device-agent gateway invite`: one line with which a device joins this gateway. */
export function inviteCommand(context: CommandContext): Command {
  const command = new Command('invite')
    .description('create a join string: one line that connects a device to this gateway')
    .option('--name <name>', 'name of the device; default: its host name')
    .option('--tag <tag...>', 'tags of the device, such as berlin')
    .option(
      '--domain <wildcard>',
      'wildcard domain of the device, such as *.{name}.site.example.com; default: GATEWAY_RESERVED_DOMAIN',
    )
    .option('--allow <name...>', 'further names that the device may open; {name} is its name')
    .option('--description <text>', 'note for people')
    .addOption(
      new Option(
        '--end <duration>',
        'time until the end, such as 24h or 7d; default: 1h',
      ).argParser(duration),
    )
    .addOption(
      new Option('--count <n>', 'number of devices that can use it; more than 1 requires --end')
        .default(1)
        .argParser(count),
    )
    .option(
      '--replace',
      'give the name of a device to this one: revoke the authtoken of the old device',
    )
    .option('--qr', 'print the QR code also if the output is not a terminal')
    .option('--no-qr', 'print no QR code')
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      '\nPaste the printed line on the device. The join string contains a secret: until it is used or ends, anyone\nwith it can connect a device. Create it on the machine of the gateway, with sudo.',
    )
  return asking(command, async (options: InviteOptions) => {
    if (options.count > 1 && options.end === undefined) {
      command.error('error: --count requires --end, such as --end 24h')
    }
    if (options.replace && options.name === undefined) {
      command.error('error: --replace requires --name, the name of the old device')
    }
    const { invite } = await import('./invites.ts')
    await invite(context, options)
  })
}

/** `device-agent gateway invites`: what became of the join strings. */
export function invitesCommand(context: CommandContext): Command {
  const command = new Command('invites')
    .description('list invitations and the devices that joined with them')
    .option('--json', 'print one JSON line on stdout')
  return asking(command, async (options: InvitesOptions) => {
    const { listInvites } = await import('./invites.ts')
    await listInvites(context, options)
  })
}

/** `device-agent gateway withdraw`: ends an invitation. */
export function withdrawCommand(context: CommandContext): Command {
  const command = new Command('withdraw')
    .description('end an invitation; devices that joined with it stay connected')
    .argument('<id>', 'id of the invitation, such as inv_…')
    .option('--json', 'print one JSON line on stdout')
  return asking(command, async (options: InvitesOptions, [id = '']) => {
    const { withdraw } = await import('./invites.ts')
    await withdraw(context, id, options)
  })
}

/** `device-agent gateway revoke`: a lost or stolen device. */
export function revokeCommand(context: CommandContext): Command {
  const command = new Command('revoke')
    .description('revoke the authtoken of a device, such as a lost one; it goes offline at once')
    .argument('<device>', 'name of the device, or its id, such as dv_…')
    .option('--json', 'print one JSON line on stdout')
  return asking(command, async (options: InvitesOptions, [device = '']) => {
    const { revoke } = await import('./revoke.ts')
    await revoke(context, device, options)
  })
}

function asking<Options extends object>(
  command: Command,
  run: (options: Options, words: readonly string[]) => Promise<void>,
): Command {
  for (const option of managementOptions()) command.addOption(option)
  // The command above it knows --json, too, and takes it.
  return command.action(() => run(command.optsWithGlobals<Options>(), command.args))
}

function duration(text: string): number {
  const days = /^(\d{1,3})d$/.exec(text)?.[1]
  const ms = days === undefined ? parseDuration(text) : Number(days) * DAY_MS
  if (ms !== undefined && ms > 0 && ms <= 366 * DAY_MS) return ms
  throw new InvalidArgumentError('Use a duration up to a year, such as 30m, 24h or 7d.')
}

function count(text: string): number {
  const value = Number(text)
  if (/^\d{1,4}$/.test(text) && value >= 1 && value <= 1_000) return value
  throw new InvalidArgumentError('Use a number from 1 to 1000.')
}
