import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'
import { managementOptions } from '../provision/management-access.ts'
import type { ForgetOptions } from './forget.ts'

/** `device-agent gateway forget`: removes a gateway that is gone for good from its site. */
export function forgetCommand(context: CommandContext): Command {
  const command = new Command('forget')
    .description('remove a gateway that is gone for good from its site')
    .argument('<node>', 'its name or id')
    .option('--json', 'one JSON line on stdout, and nothing else')
    .addHelpText(
      'after',
      '\nOnly what is gone is forgotten: stop it first, or wait until the others have given it up. They take nothing from it\nany more; where it is started again, it says so, and needs a new join token.',
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
