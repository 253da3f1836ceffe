import { Command } from 'commander'
import type { CommandContext } from './command-context.ts'
import type { ResetOptions } from './reset-identity.ts'

/** Effects of an identity reset, for `--help` and for the command. */
const WHAT_HAPPENS = `The device gets a new identity. Run this command on the copy, not on the original device.
Tunnels and AGENT_DOMAIN stay the same. While the original device is online, they are refused here as a
conflict. Change them on this device with device-agent tunnels set NAME --domain NEW.
Also change AGENT_DOMAIN.
The API tokens are copies, too. Rotate them: device-agent token rotate.
`

/** `device-agent identity …`: which device this is to the gateway. */
export function identityCommand(context: CommandContext): Command {
  const identity = new Command('identity').description(
    'manage the identity of this device at the gateway',
  )
  identity
    .command('reset')
    .description('give this device a new identity after its data directory was copied')
    .option('--yes', 'reset the identity; without this option, only explain the effects')
    .option('--json', 'print one JSON line on stdout')
    .addHelpText('after', `\n${WHAT_HAPPENS}`)
    .action(async (options: ResetOptions) => {
      const { resetIdentity } = await import('./reset-identity.ts')
      resetIdentity(context, options, WHAT_HAPPENS)
    })
  return identity
}
