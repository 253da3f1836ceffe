import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'
import { managementOptions } from '../provision/management-access.ts'
import type { ForgetOptions } from './forget.ts'

/** `device-agent gateway forget`: removes a gateway that is gone for good from its site. */
export function forgetCommand(context: CommandContext): Command {
  const command = new Command('forget')
    .description('remove a lost gateway from its cluster')
    .argument('<node>', 'name or id of the gateway')
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      '\nThe gateway must be gone: stop it first, or wait until the other gateways mark it as lost. The other gateways then\nreject its data. To start it again, it needs a new join token.',
    )
  for (const option of managementOptions()) command.addOption(option)
  return command.action(async (name: string, _options: object, self: Command) => {
    // The command above it knows --json, too, and takes it.
    const options = self.optsWithGlobals<ForgetOptions>()
    // Loaded late: the other commands have no use for it.
    const { forget } = await import('./forget.ts')
    await forget(context, name, options)
  })
}
