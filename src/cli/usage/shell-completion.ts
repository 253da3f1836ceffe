import {
  type ArgumentShape,
  type CommandShape,
  everyCommand,
  type OptionShape,
  type ValueKind,
} from './command-shape.ts'

/** Completion for zsh: a function for each command, as `_arguments` of its completion system wants it. */
function zshCompletion(program: CommandShape): string {
  const functions = [...everyCommand(program)].map(({ words, shape }) =>
    functionOf(functionName([program.name, ...words]), shape),
  )
  const main = functionName([program.name])
  return `#compdef ${program.name}
# Completion of ${program.name} for zsh, made by: ${program.name} completion zsh
${functions.join('\n')}
if [ "$funcstack[1]" = _${program.name} ]; then
  ${main} "$@"
else
  compdef ${main} ${program.name}
fi
`
}

function functionName(words: readonly string[]): string {
  return `_${words.join('_').replaceAll('-', '_')}`
}

function functionOf(name: string, shape: CommandShape): string {
  const options = shape.options.map(optionSpec)
  if (shape.commands.length === 0) {
    const specs = [...options, ...shape.arguments.map(argumentSpec)]
    return `${name}() {
  _arguments -s${specs.map((spec) => ` \\\n    ${spec}`).join('')}
}`
  }
  const commands = shape.commands.map((command) => quoted(`${command.name}:${command.description}`))
  const ways = shape.commands.map((command) => {
    return `        ${command.name}) ${functionName([name.slice(1), command.name])} && result=0 ;;`
  })
  const specs = [...options, quoted('1: :->command'), quoted('*:: :->rest')]
  return `${name}() {
  local curcontext=$curcontext state line result=1
  local -a commands=(
${commands.map((command) => `    ${command}`).join('\n')}
  )
  _arguments -C -s${specs.map((spec) => ` \\\n    ${spec}`).join('')} && result=0
  case $state in
    command) _describe -t commands command commands && result=0 ;;
    rest)
      case $line[1] in
${ways.join('\n')}
      esac ;;
  esac
  return result
}`
}

function optionSpec({ names, description, value, isRepeatable }: OptionShape): string {
  const words = `[${escaped(description)}]${value ? `: :${zshAction(value)}` : ''}`
  const form = (name: string) => (value && name.startsWith('--') ? `${name}=` : name)
  if (isRepeatable) return names.map((name) => quoted(`*${form(name)}${words}`)).join(' ')
  const apart = names.length > 1 ? `(${names.join(' ')})` : ''
  return names.map((name) => quoted(`${apart}${form(name)}${words}`)).join(' ')
}

function argumentSpec({ term, kind, isVariadic }: ArgumentShape): string {
  const mayMiss = term.startsWith('[') ? ':' : ''
  const message = escaped(term.replace(/[<>[\].]/g, ''))
  return quoted(`${isVariadic ? '*' : mayMiss}:${message}:${zshAction(kind)}`)
}

function zshAction(kind: ValueKind): string {
  if (kind.name === 'choice') return `(${kind.words.join(' ')})`
  if (kind.name === 'text') return ''
  return kind.name === 'folder' ? '_files -/' : '_files'
}

/** Characters that mean something within a specification. */
function escaped(text: string): string {
  return text.replace(/[\\[\]:]/g, (character) => `\\${character}`)
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** Completion for fish 3 and newer. Each line applies to the command of the typed words. */
function fishCompletion(program: CommandShape): string {
  const all = [...everyCommand(program)]
  const places = all.map(({ words }) => words.join(' ')).filter((place) => place !== '')
  const valued = all.flatMap(({ words, shape }) =>
    shape.options
      .filter(({ value }) => value)
      .flatMap(({ names }) => names.map((name) => [...words, name].join(' '))),
  )
  const lines = all.flatMap(({ words, shape }) => linesOf(program.name, words, shape))
  return `# Completion of ${program.name} for fish, made by: ${program.name} completion fish
function __device_agent_at --description 'The command is this one, with so many arguments behind it'
    set -l place
    set -l count 0
    set -l skip no
    for word in (commandline -opc)[2..]
        set -l here (string join ' ' -- $place $word)
        if test $skip = yes
            set skip no
        else if contains -- $here ${places.map(fishQuoted).join(' ')}
            set -a place $word
        else if contains -- $here ${valued.map(fishQuoted).join(' ')}
            set skip yes
        else if not string match -q -- '-*' $word
            set count (math $count + 1)
        end
    end
    test "$place" = "$argv[1]"; and test -z "$argv[2]" -o $count = "$argv[2]"
end
complete -c ${program.name} -f
${lines.join('\n')}
`
}

function linesOf(program: string, words: readonly string[], shape: CommandShape): string[] {
  const place = words.join(' ')
  const at = (count: number | '') =>
    `complete -c ${program} -n ${fishQuoted(`__device_agent_at "${place}" ${count}`.trimEnd())}`
  return [
    ...shape.commands.map(({ name, description }) => {
      return `${at(0)} -a ${name} -d ${fishQuoted(description)}`
    }),
    ...shape.options.map(({ names, description, value }) => {
      const forms = names.map((name) =>
        name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
      )
      return `${at('')} ${forms.join(' ')}${value ? ` ${isPath(value) ? '-r' : '-x'} ${fishAction(value)}`.trimEnd() : ''} -d ${fishQuoted(description)}`
    }),
    ...shape.arguments.flatMap(({ kind, isVariadic }, index) =>
      kind.name === 'text' ? [] : [`${at(isVariadic ? '' : index)} ${fishAction(kind)}`],
    ),
  ]
}

const isPath = ({ name }: ValueKind) => name === 'file' || name === 'folder'

function fishAction(kind: ValueKind): string {
  if (kind.name === 'choice') return `-a ${fishQuoted(kind.words.join(' '))}`
  if (kind.name === 'text') return ''
  return kind.name === 'folder' ? "-a '(__fish_complete_directories)'" : '-F'
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
}

/**
 * Completion for bash 4.1 and newer, without the package bash-completion. A position is the words of the
 * command, followed by one of: an option that needs a value, `-` for options, or the number of arguments.
 */
function bashCompletion(program: CommandShape): string {
  const all = [...everyCommand(program)]
  const placed = all.map(({ words, shape }) => ({
    place: words.map((word) => ` ${word}`).join(''),
    shape,
  }))
  const commands = placed.map(({ place }) => place).filter((place) => place !== '')
  const valued = placed.flatMap(({ place, shape }) =>
    shape.options
      .filter(({ value }) => value)
      .flatMap(({ names }) => names.map((name) => `${place} ${name}`)),
  )
  const name = `_${program.name.replaceAll('-', '_')}`
  return `# Completion of ${program.name} for bash, made by: ${program.name} completion bash
${name}() {
  local cur=\${COMP_WORDS[COMP_CWORD]} place= option= count=0 words= word i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if [[ $option ]]; then
      [[ $word == = ]] || option=
      continue
    fi
    case "$place $word" in
      ${commands.map(quoted).join(' | ')})
        place+=" $word" ;;
      ${valued.map(quoted).join(' | ')})
        option=$word ;;
      *' -'*) ;;
      *) count=$((count + 1)) ;;
    esac
  done
  [[ $cur == = ]] && cur=
  if [[ $option ]]; then
    place+=" $option"
  elif [[ $cur == -* ]]; then
    place+=' -'
  else
    place+=" $count"
  fi
  case "$place" in
${placed.flatMap(({ place, shape }) => casesOf(place, shape)).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F ${name} ${program.name}
`
}

function casesOf(place: string, { options, commands, arguments: args }: CommandShape): string[] {
  const cases = options.flatMap(({ names, value }) =>
    value === undefined || value.name === 'text'
      ? []
      : [caseOf(names.map((name) => quoted(`${place} ${name}`)).join(' | '), value)],
  )
  const names = options.flatMap((option) => option.names)
  cases.push(caseOf(quoted(`${place} -`), { name: 'choice', words: names }))
  if (commands.length > 0) {
    const words = commands.map((command) => command.name)
    cases.push(caseOf(quoted(`${place} 0`), { name: 'choice', words }))
  }
  for (const [index, { kind, isVariadic }] of args.entries()) {
    if (kind.name === 'text') continue
    cases.push(
      caseOf(isVariadic ? `${quoted(`${place} `)}[0-9]*` : quoted(`${place} ${index}`), kind),
    )
  }
  return cases
}

function caseOf(pattern: string, kind: ValueKind): string {
  return `    ${pattern}) ${bashAction(kind)} ;;`
}

/** Readline completes names of files itself: it knows how to quote them. */
function bashAction(kind: ValueKind): string {
  if (kind.name === 'choice') return `words=${quoted(kind.words.join(' '))}`
  return `compopt -o ${kind.name === 'folder' ? 'dirnames' : 'default'}; return`
}

/** The writer of each shell's completion. */
export const COMPLETIONS = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
}
