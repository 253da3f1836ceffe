import { Command, CommanderError } from 'commander'
import { StartError } from '../base/app-error.ts'
import { asJournalError } from '../base/logger.ts'
import { backupCommand, restoreCommand } from './backup/backup-commands.ts'
import type { CommandContext } from './command-context.ts'
import { doctorCommand } from './doctor/doctor.ts'
import { fleetCommand } from './fleet.ts'
import { gatewayCommand } from './gateway.ts'
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
import { readVersion } from './version.ts'

/** The program with its subcommands; nothing runs before `parseAsync()`. */
export function createProgram(context: CommandContext): Command {
  const program = new Command('device-agent')
    .description(
      'Makes services of this device reachable at public URLs, keeps the tunnels open and reports their status.',
    )
    .version(readVersion(), '-v, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    .showHelpAfterError('(run device-agent --help for all commands)')
    .configureOutput({
      writeOut: (text) => context.stdout.write(text),
      writeErr: (text) => context.stderr.write(text),
    })
    .exitOverride()
    .addHelpText('after', SETTINGS_HINT)
  for (const [heading, commands] of COMMANDS) {
    for (const command of commands) {
      program.addCommand(inherit(command(context).helpGroup(heading), program))
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
      gatewayCommand,
      serviceCommand,
      updateCommand,
    ],
  ],
  ['Manage many devices:', [provisionCommand, fleetCommand, policyCommand]],
  ['Help:', [helpCommand, versionCommand, completionCommand, manCommand]],
] as const

const SETTINGS_HINT = `
Exit codes: 0 success, 1 failed, 2 wrong usage, 3 work left (fleet, drain, setup),
4 devices in no set (fleet).
Settings come from the environment or from .env in the current directory.
Run device-agent help settings for a list.`

/** Subcommands of subcommands, too, leave it to us how the process ends and where text goes. */
function inherit(command: Command, parent: Command): Command {
  command.copyInheritedSettings(parent)
  if (command.commands.length > 0) {
    command.helpCommand('help [command]', 'print the help of a command')
  }
  for (const subcommand of command.commands) inherit(subcommand, command)
  return command
}

/**
 * 0 good, 1 failed, 2 wrong usage. Says why in words; only a mistake of ours shows its stack.
 */
export function exitCodeOf(
  error: unknown,
  stderr: NodeJS.WritableStream,
  { isJournal }: { readonly isJournal: boolean },
): number {
  // Commander has written its own words by now.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  const text = `device-agent: ${wordsOf(error)}\n`
  stderr.write(isJournal ? asJournalError(text) : text)
  return 1
}

const SERVICES = new Set(['run', 'up', 'gateway'])

/** Whether these arguments start a service, and not a command that ends. */
export function isService([command = '', next = '-']: readonly string[]): boolean {
  return SERVICES.has(command) && (command !== 'gateway' || next.startsWith('-'))
}

/**
 * The failure as a line of JSON, for a command with --json. Undefined for other commands, and for services: they
 * print their line when they are ready.
 */
export function failureLine(error: unknown, args: readonly string[]): string | undefined {
  if (!args.includes('--json') || isService(args)) return undefined
  if (error instanceof CommanderError && error.exitCode === 0) return undefined
  return `${JSON.stringify({ error: failureText(error) })}\n`
}

function failureText(error: unknown): string {
  if (error instanceof StartError) return error.message
  if (!(error instanceof CommanderError)) return 'Unexpected error. See stderr.'
  const isHelp = error.code === 'commander.help'
  return isHelp ? 'The command is incomplete. See --help.' : error.message.replace(/^error: /, '')
}

/** Why a service cannot start, for people elsewhere than at its log. */
export function reasonOf(error: unknown): string {
  return error instanceof StartError
    ? error.message
    : 'unexpected error; see the log of the service'
}

function wordsOf(error: unknown): string {
  if (error instanceof StartError) return error.message
  return `unexpected: ${error instanceof Error ? error.stack : error}`
}
