import { Command } from 'commander'
import type { CommandContext } from './command-context.ts'
import type { ResetOptions } from './identity/reset-identity.ts'
import { WHAT_HAPPENS } from './identity/what-happens.ts'

/** `device-agent identity …`: which device this is to the service. */
export function identityCommand(context: CommandContext): Command {
  const identity = new Command('identity').description(
    'manage the identity of this device at the service',
  )
  identity
    .command('reset')
    .description('give this device a new identity after its data directory was copied')
    .option('--yes', 'reset the identity; without this option, only explain the effects')
    .option('--json', 'print one JSON line on stdout')
    .addHelpText('after', `\n${WHAT_HAPPENS}`)
    .action(async (options: ResetOptions) => {
      const { resetIdentity } = await import('./identity/reset-identity.ts')
      resetIdentity(context, options)
    })
  return identity
}
