import { Command, InvalidArgumentError, Option } from 'commander'
import { Problem, servers } from '../settings/forms.ts'
import type { CommandContext } from './command-context.ts'
import { managementOptions } from './provision/management-access.ts'
import type { ProvisionOptions } from './provision/provision.ts'

/** `device-agent provision`: from a name to a device that may connect. */
export function provisionCommand(context: CommandContext): Command {
  const command = new Command('provision')
    .description('create domain, bot user, authtoken, API token and settings file for new devices')
    .option('--name <name>', 'name of a single device')
    .addOption(
      new Option('--list <file>', 'file with device names, one per line').conflicts([
        'name',
        'envFile',
        'authtokenFile',
      ]),
    )
    .option(
      '--domain <wildcard>',
      'wildcard domain of the devices, such as *.site.example.com or *.{name}.site.example.com',
    )
    .option(
      '--agent-domain <domain>',
      'AGENT_DOMAIN of the devices; {name} is replaced by the device name',
    )
    .option('--output <folder>', 'folder for the settings files, one <name>.env per device', '.')
    .option('--env-file <file>', 'path of the settings file, for a single device')
    .option(
      '--authtoken-file <file>',
      'write the authtoken to a separate file, for a single device',
    )
    .addOption(
      new Option(
        '--server-addr <host:port,...>',
        'SVC_SERVER_ADDR of the devices; default: all gateways of the cluster, if it runs on this machine',
      ).argParser(parseServers),
    )
    .option('--ca-cert <file>', 'SVC_CA_CERT of the devices, a path on the device')
    .option(
      '--devices <file>',
      'list of devices and their API tokens, for device-agent fleet (default: fleet-devices.jsonl in the output folder)',
    )
    .option('--tag <tag...>', 'tags of the devices, such as berlin; default: unchanged')
    .option('--rotate', 'replace authtokens and API tokens; the old authtokens stop working')
    .addOption(
      new Option(
        '--retire',
        'remove devices: revoke their authtokens, delete their bot users and files',
      ).conflicts(['rotate', 'tag']),
    )
    .option('--dry-run', 'show the changes without making them')
    .option('--json', 'print one JSON line on stdout')
  for (const option of managementOptions()) command.addOption(option)
  return command.action(async (options: ProvisionOptions) => {
    if (options.name === undefined && options.list === undefined) {
      command.error('error: use --name for one device or --list for many')
    }
    // Loaded late: the other commands have no use for it.
    const { provision } = await import('./provision/provision.ts')
    await provision(context, options)
  })
}

function parseServers(text: string): string {
  const all = text === '' ? new Problem('must not be empty') : servers.read(text)
  if (all instanceof Problem) throw new InvalidArgumentError(`It ${all.message}.`)
  return all.join(',')
}
