import { Command } from 'commander'
import { nearest } from '../base/nearest.ts'
import type { CommandContext } from './command-context.ts'
import { readVersion } from './version.ts'

/** The program without subcommands. */
export function bareProgram(context: CommandContext): Command {
  return new Command('device-agent')
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
}

const SETTINGS_HINT = `
Exit codes: 0 success, 1 failed, 2 wrong usage, 3 work left (fleet, drain, setup),
4 devices in no set (fleet).
Settings come from the environment or from .env in the current directory.
Run device-agent help settings for a list.`

/** Adds a subcommand. It and its own subcommands leave the end of the process and the output to the program. */
export function addSubcommand(program: Command, command: Command): void {
  program.addCommand(inherit(command, program, []))
}

function inherit(command: Command, parent: Command, above: readonly string[]): Command {
  const words = [...above, command.name()]
  command.copyInheritedSettings(parent)
  command.showHelpAfterError(`(run device-agent help ${words.join(' ')})`)
  if (command.commands.length > 0) {
    command.helpCommand('help [command]', 'print the help of a command')
  }
  for (const subcommand of command.commands) inherit(subcommand, command, words)
  // Last, because subcommands inherit it.
  if (command.commands.length > 0) refuseUnknown(command)
  return command
}

/** A command that also runs without a subcommand takes an unknown one for an argument. */
function refuseUnknown(command: Command): void {
  command.allowExcessArguments().hook('preAction', (_command, acting) => {
    const [word] = command.args
    if (acting !== command || word === undefined) return
    const meant = nearest(
      word,
      command.commands.map((it) => it.name()),
    )
    const hint = meant === undefined ? '' : `\n(Did you mean ${meant}?)`
    command.error(`error: unknown command '${word}'${hint}`)
  })
}
