import { type CommandShape, everyCommand, type ValueKind } from './command-shape.ts'

/** Completion for fish 3 and newer. Each line holds where the words typed so far are those of its command. */
export function fishCompletion(program: CommandShape): string {
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
        else if contains -- $here ${places.map(quoted).join(' ')}
            set -a place $word
        else if contains -- $here ${valued.map(quoted).join(' ')}
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
    `complete -c ${program} -n ${quoted(`__device_agent_at "${place}" ${count}`.trimEnd())}`
  return [
    ...shape.commands.map(({ name, description }) => {
      return `${at(0)} -a ${name} -d ${quoted(description)}`
    }),
    ...shape.options.map(({ names, description, value }) => {
      const forms = names.map((name) =>
        name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
      )
      return `${at('')} ${forms.join(' ')}${value ? ` ${isPath(value) ? '-r' : '-x'} ${actionOf(value)}`.trimEnd() : ''} -d ${quoted(description)}`
    }),
    ...shape.arguments.flatMap(({ kind, isVariadic }, index) =>
      kind.name === 'text' ? [] : [`${at(isVariadic ? '' : index)} ${actionOf(kind)}`],
    ),
  ]
}

const isPath = ({ name }: ValueKind) => name === 'file' || name === 'folder'

function actionOf(kind: ValueKind): string {
  if (kind.name === 'choice') return `-a ${quoted(kind.words.join(' '))}`
  if (kind.name === 'text') return ''
  return kind.name === 'folder' ? "-a '(__fish_complete_directories)'" : '-F'
}

function quoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
}
