import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'
import { managementOptions } from '../provision/management-access.ts'
import type { AllowOptions, RemoveOptions, SecretsOptions, SetOptions } from './secrets.ts'

const NOT_AN_ARGUMENT =
  'error: a value cannot be an argument, because other users of this machine can see arguments. Use --file, or standard input.'

const ACCOUNT = 'bot user that owns the vault; default: account of the API key'

/** `device-agent gateway secrets`: secrets that policies read with `secrets.get()`. */
export function secretsCommand(context: CommandContext): Command {
  const command = new Command('secrets').description(
    'set, list, allow and remove secrets of policies',
  )
  command.addCommand(setCommand(context))
  command.addCommand(listCommand(context))
  command.addCommand(allowCommand(context))
  command.addCommand(removeCommand(context))
  return command
}

function setCommand(context: CommandContext): Command {
  const command = new Command('set')
    .description('set the value of a secret; it is read from a file or standard input')
    .argument('<vault>', 'name of the vault; it is created if needed')
    .argument('<name>', 'name of the secret')
    .argument('[value...]', 'not allowed: use --file or standard input')
    .option('--file <file>', 'read the value from a file; default: standard input')
    .option(
      '--allow <id...>',
      'authtokens, bot users and domains whose policies may use it, too; replaces earlier ones',
    )
    .option('--account <id>', ACCOUNT)
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      '\nOne line break at the end of the value is removed. Policies use the new value from the next request on.',
    )
  return asking(command, async ([vault = '', name = '', value = []], options: SetOptions) => {
    if (value.length > 0) command.error(NOT_AN_ARGUMENT)
    if (options.file === undefined && options.keyStdin) {
      command.error('error: --key-stdin needs --file, because both read standard input')
    }
    const { setSecret } = await import('./secrets.ts')
    await setSecret(context, { vault: String(vault), name: String(name) }, options)
  })
}

function listCommand(context: CommandContext): Command {
  const command = new Command('list')
    .description('list secrets without their values, and the endpoints that use them')
    .option('--json', 'print one JSON line on stdout')
  return asking(command, async (_names, options: SecretsOptions) => {
    const { listSecrets } = await import('./secrets.ts')
    await listSecrets(context, options)
  })
}

function allowCommand(context: CommandContext): Command {
  const command = new Command('allow')
    .description('set whose policies may use a secret; its value stays')
    .argument('<vault>', 'name of the vault')
    .argument('<name>', 'name of the secret')
    .argument('[id...]', 'authtokens, bot users and domains; replaces earlier ones')
    .option('--add', 'keep earlier ones')
    .option('--none', 'allow only cloud endpoints of the account')
    .option('--account <id>', ACCOUNT)
    .option('--json', 'print one JSON line on stdout')
  return asking(command, async ([vault = '', name = '', ids = []], options: AllowOptions) => {
    if ((ids.length === 0) !== (options.none === true)) {
      command.error('error: name one id or more, or use --none')
    }
    const { allowSecret } = await import('./secrets.ts')
    const named = { vault: String(vault), name: String(name) }
    await allowSecret(context, named, { ...options, ids: [ids].flat() })
  })
}

function removeCommand(context: CommandContext): Command {
  const command = new Command('remove')
    .description('delete a secret, and its vault if that is empty then')
    .argument('<vault>', 'name of the vault')
    .argument('<name>', 'name of the secret')
    .option('--account <id>', ACCOUNT)
    .option('--force', 'delete it even if policies use it')
    .option('--json', 'print one JSON line on stdout')
  return asking(command, async ([vault = '', name = ''], options: RemoveOptions) => {
    const { removeSecret } = await import('./secrets.ts')
    await removeSecret(context, { vault: String(vault), name: String(name) }, options)
  })
}

function asking<Options extends object>(
  command: Command,
  run: (names: readonly (string | readonly string[])[], options: Options) => Promise<void>,
): Command {
  for (const option of managementOptions()) command.addOption(option)
  // The commands above it know --json, too, and take it.
  return command.action(() => run(command.processedArgs, command.optsWithGlobals<Options>()))
}
