import type { Command } from 'commander'
import { addSubcommand, bareProgram } from './bare-program.ts'
import type { CommandContext } from './command-context.ts'
import { gatewayCommand } from './gateway.ts'
import { runCommand } from './run.ts'
import { upCommand } from './up.ts'

const SERVICES: ReadonlyMap<string, (context: CommandContext) => Command> = new Map([
  ['run', runCommand],
  ['up', upCommand],
  ['gateway', gatewayCommand],
])

/** Whether these arguments start a service, and not a command that ends. */
export function isService([command = '', next = '-']: readonly string[]): boolean {
  return SERVICES.has(command) && (command !== 'gateway' || next.startsWith('-'))
}

const OF_ALL_COMMANDS = ['--', '--help']

/**
 * The program with one command, if the arguments are the command of a service and options. A service starts
 * faster and stays smaller without the other commands. Undefined for other arguments, and for help, which lists
 * all commands.
 */
export function serviceProgram(
  context: CommandContext,
  [name = '', ...options]: readonly string[],
): Command | undefined {
  const command = SERVICES.get(name)
  const isPlain = options.every(
    (option) => option.startsWith('--') && !OF_ALL_COMMANDS.includes(option),
  )
  if (!command || !isPlain) return undefined
  const program = bareProgram(context)
  addSubcommand(program, command(context))
  return program
}
