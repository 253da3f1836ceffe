import type { Command } from 'commander'
import { backupCommand, restoreCommand } from './backup/backup-commands.ts'
import { addSubcommand, bareProgram } from './bare-program.ts'
import type { CommandContext } from './command-context.ts'
import { doctorCommand } from './doctor/doctor.ts'
import { fleetCommand } from './fleet.ts'
import { gatewayCommands } from './gateway-commands.ts'
import { healthCommand } from './health.ts'
import { identityCommand } from './identity.ts'
import { joinCommand, leaveCommand } from './join/join-commands.ts'
import { logsCommand } from './local/logs.ts'
import { pageCommand } from './local/page.ts'
import { statusCommand } from './local/status.ts'
import { tunnelsCommand } from './local/tunnels.ts'
import { policyCommand } from './policy.ts'
import { provisionCommand } from './provision.ts'
import { runCommand } from './run.ts'
import { serviceCommand } from './service/service.ts'
import { storageCommand } from './storage.ts'
import { supportBundleCommand } from './support-bundle.ts'
import { tokenCommand } from './token.ts'
import { upCommand } from './up.ts'
import { updateCommand } from './update/update.ts'
import {
  completionCommand,
  helpCommand,
  manCommand,
  versionCommand,
} from './usage/usage-commands.ts'

/** The program with its subcommands; nothing runs before `parseAsync()`. */
export function createProgram(context: CommandContext): Command {
  const program = bareProgram(context)
  for (const [heading, commands] of COMMANDS) {
    for (const command of commands) {
      addSubcommand(program, command(context).helpGroup(heading))
    }
  }
  return program
}

/** Grouped by task, in the order of the help. */
const COMMANDS = [
  [
    'Manage a device:',
    [
      statusCommand,
      tunnelsCommand,
      doctorCommand,
      healthCommand,
      logsCommand,
      pageCommand,
      tokenCommand,
      identityCommand,
      backupCommand,
      restoreCommand,
      storageCommand,
      supportBundleCommand,
    ],
  ],
  [
    'Run and install:',
    [
      joinCommand,
      leaveCommand,
      upCommand,
      runCommand,
      gatewayCommands,
      serviceCommand,
      updateCommand,
    ],
  ],
  ['Manage many devices:', [provisionCommand, fleetCommand, policyCommand]],
  ['Help:', [helpCommand, versionCommand, completionCommand, manCommand]],
] as const
