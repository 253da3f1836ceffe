import type { Argument, Command, Option } from 'commander'

/** Allowed values: fixed words, a file, a folder, or any text. */
export type ValueKind =
  | { readonly name: 'choice'; readonly words: readonly string[] }
  | { readonly name: 'file' }
  | { readonly name: 'folder' }
  | { readonly name: 'text' }

export interface ArgumentShape {
  /** As the help shows it, such as `<file...>`. */
  readonly term: string
  readonly kind: ValueKind
  readonly isVariadic: boolean
}

export interface OptionShape {
  /** As the help shows it, such as `-H, --header <header>`. */
  readonly flags: string
  /** Names of the option, such as `-H` and `--header`. */
  readonly names: readonly string[]
  readonly description: string
  /** Undefined: the option takes no value. */
  readonly value: ValueKind | undefined
  readonly isRepeatable: boolean
}

/** Structure of a command for shells and manuals, in the order of the help. */
export interface CommandShape {
  readonly name: string
  readonly description: string
  /** As the help shows it behind the name, such as `<domain> <forwards-to>`. */
  readonly usage: string
  readonly options: readonly OptionShape[]
  readonly arguments: readonly ArgumentShape[]
  readonly commands: readonly CommandShape[]
}

/** Start of a usage line, before the arguments. */
const NO_ARGUMENTS = /^\[options\] ?(\[command\] ?)?/

/** Reads a command from the definitions of commander. */
export function shapeOf(command: Command): CommandShape {
  const help = command.createHelp()
  const args = help.visibleArguments(command).map(argumentShape)
  return {
    name: command.name(),
    description: command.description(),
    usage: command.usage().replace(NO_ARGUMENTS, ''),
    options: help.visibleOptions(command).map(optionShape),
    arguments: args.length > 0 ? args : command.registeredArguments.map(argumentShape),
    // Without `help` of each group: its completion is of little use.
    commands: help
      .visibleCommands(command)
      .filter((sub) => command.commands.includes(sub))
      .map(shapeOf),
  }
}

/** Each command with the words that lead to it from the program's name on, the program first. */
export function* everyCommand(
  shape: CommandShape,
  words: readonly string[] = [],
): Generator<{ readonly words: readonly string[]; readonly shape: CommandShape }> {
  yield { words, shape }
  for (const command of shape.commands) yield* everyCommand(command, [...words, command.name])
}

/** A group has subcommands, and neither arguments nor options of its own: it does nothing alone. */
export function isGroup({ commands, usage, options }: CommandShape): boolean {
  const own = options.filter(({ names }) => !names.includes('--help'))
  return commands.length > 0 && usage === '' && own.length === 0
}

function optionShape(option: Option): OptionShape {
  const { flags, description, short, long, required, optional } = option
  const [, term = ''] = /[<[]([^>\]]+)[>\]]/.exec(flags) ?? []
  return {
    flags,
    names: [short, long].filter((name) => name !== undefined),
    description,
    value: required || optional ? kindOf(term, option.argChoices) : undefined,
    isRepeatable: option.variadic || description.includes('may be repeated'),
  }
}

function argumentShape(argument: Argument): ArgumentShape {
  return {
    term: termOf(argument),
    kind: kindOf(argument.name(), argument.argChoices),
    isVariadic: argument.variadic,
  }
}

function termOf(argument: Argument): string {
  const name = argument.name() + (argument.variadic ? '...' : '')
  return argument.required ? `<${name}>` : `[${name}]`
}

function kindOf(term: string, choices: readonly string[] | undefined): ValueKind {
  if (choices) return { name: 'choice', words: choices }
  if (term === 'file' || term === 'folder') return { name: term }
  return { name: 'text' }
}
