import { Command, InvalidArgumentError, Option } from 'commander'
import { parseListenAddress } from '../base/listen-address.ts'
import type { CommandContext } from './command-context.ts'
import { managementOptions } from './provision/management-access.ts'
import type { ProvisionOptions } from './provision/provision.ts'

/** `device-agent provision`: from a name to a device that may connect. */
export function provisionCommand(context: CommandContext): Command {
  const command = new Command('provision')
    .description(
      'give devices a reserved domain, a bot user, an authtoken, an API token and a settings file, once each',
    )
    .option('--name <name>', 'name of one device')
    .addOption(
      new Option('--list <file>', 'names of many devices, one on each line').conflicts([
        'name',
        'envFile',
        'authtokenFile',
      ]),
    )
    .option(
      '--domain <wildcard>',
      'what they may bind, such as *.site.example.com or *.{name}.site.example.com',
    )
    .option('--agent-domain <domain>', 'AGENT_DOMAIN; {name} stands for the name of the device')
    .option('--output <folder>', 'where the settings files go, one <name>.env for each device', '.')
    .option('--env-file <file>', 'the settings file itself, for one device')
    .option('--authtoken-file <file>', 'put the authtoken into a file of its own, for one device')
    .addOption(
      new Option('--server-addr <host:port>', 'SVC_SERVER_ADDR of the devices').argParser(
        parseServer,
      ),
    )
    .option('--ca-cert <file>', 'SVC_CA_CERT of the devices, as they find it')
    .option(
      '--devices <file>',
      'list of the devices and the tokens of their APIs, for fleet (default: fleet-devices.jsonl in the output folder)',
    )
    .option('--tag <tag...>', 'what kind of devices they are, such as berlin; unset: as before')
    .option('--rotate', 'replace authtokens and API tokens: authtokens from earlier stop working')
    .addOption(
      new Option(
        '--retire',
        'take devices out of service: end their authtokens, delete their bot users and files',
      ).conflicts(['rotate', 'tag']),
    )
    .option('--dry-run', 'only say what would be done')
    .option('--json', 'one JSON line on stdout, and nothing else')
  for (const option of managementOptions()) command.addOption(option)
  return command.action(async (options: ProvisionOptions) => {
    if (options.name === undefined && options.list === undefined) {
      command.error('error: say who: --name for one device, --list for many')
    }
    // Loaded late: the other commands have no use for it.
    const { provision } = await import('./provision/provision.ts')
    await provision(context, options)
  })
}

function parseServer(text: string): string {
  if (parseListenAddress(text)) return text
  throw new InvalidArgumentError('It must be host:port, such as gateway.lan:4443.')
}
