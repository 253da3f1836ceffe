import { type CommandShape, everyCommand, type ValueKind } from './command-shape.ts'

/**
 * Completion for bash 4.1 and newer, without the package bash-completion. A place is the words of the
 * command, and behind them an option that waits for its value, `-` for options, or the number of
 * arguments so far.
 */
export function bashCompletion(program: CommandShape): string {
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
  return `    ${pattern}) ${actionOf(kind)} ;;`
}

/** Readline completes names of files itself: it knows how to quote them. */
function actionOf(kind: ValueKind): string {
  if (kind.name === 'choice') return `words=${quoted(kind.words.join(' '))}`
  return `compopt -o ${kind.name === 'folder' ? 'dirnames' : 'default'}; return`
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}
