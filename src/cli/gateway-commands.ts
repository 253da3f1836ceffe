import type { Command } from 'commander'
import { backupCommand, restoreCommand } from './backup/backup-commands.ts'
import type { CommandContext } from './command-context.ts'
import { gatewayCommand } from './gateway.ts'
import { gatewayStatusCommand } from './service/service.ts'
import { setupCommand } from './setup/setup-command.ts'
import { drainCommand } from './site/drain-command.ts'
import { forgetCommand } from './site/forget-command.ts'
import {
  inviteCommand,
  invitesCommand,
  revokeCommand,
  withdrawCommand,
} from './site/invite-commands.ts'
import { joinTokenCommand } from './site/join-token.ts'
import { migrateCommand } from './site/migrate.ts'
import { secretsCommand } from './site/secret-commands.ts'
import { showCommand } from './site/show.ts'

/** `device-agent gateway` with its subcommands, which manage a gateway. */
export function gatewayCommands(context: CommandContext): Command {
  const command = gatewayCommand(context)
  command.addCommand(setupCommand(context))
  command.addCommand(gatewayStatusCommand(context))
  command.addCommand(inviteCommand(context))
  command.addCommand(invitesCommand(context))
  command.addCommand(withdrawCommand(context))
  command.addCommand(revokeCommand(context))
  command.addCommand(secretsCommand(context))
  command.addCommand(showCommand(context))
  command.addCommand(joinTokenCommand(context))
  command.addCommand(migrateCommand(context))
  command.addCommand(drainCommand(context))
  command.addCommand(forgetCommand(context))
  command.addCommand(backupCommand(context, 'gateway'))
  command.addCommand(restoreCommand(context, 'gateway'))
  return command
}
