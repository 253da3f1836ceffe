import { Command } from 'commander'
import type { CommandContext } from './command-context.ts'
import type { ResetOptions } from './identity/reset-identity.ts'
import { WHAT_HAPPENS } from './identity/what-happens.ts'

/** `device-agent identity …`: which device this is to the service. */
export function identityCommand(context: CommandContext): Command {
  const identity = new Command('identity').description('which device this is to the service')
  identity
    .command('reset')
    .description('make this device another one, after its data folder was copied')
    .option('--yes', 'do it; without it, only what it means is told')
    .option('--json', 'one JSON line on stdout, and nothing else')
    .addHelpText('after', `\n${WHAT_HAPPENS}`)
    .action(async (options: ResetOptions) => {
      const { resetIdentity } = await import('./identity/reset-identity.ts')
      resetIdentity(context, options)
    })
  return identity
}
