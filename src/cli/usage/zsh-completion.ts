import {
  type ArgumentShape,
  type CommandShape,
  everyCommand,
  type OptionShape,
  type ValueKind,
} from './command-shape.ts'

/** Completion for zsh: a function for each command, as `_arguments` of its completion system wants it. */
export function zshCompletion(program: CommandShape): string {
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
  const words = `[${escaped(description)}]${value ? `: :${actionOf(value)}` : ''}`
  const form = (name: string) => (value && name.startsWith('--') ? `${name}=` : name)
  if (isRepeatable) return names.map((name) => quoted(`*${form(name)}${words}`)).join(' ')
  const apart = names.length > 1 ? `(${names.join(' ')})` : ''
  return names.map((name) => quoted(`${apart}${form(name)}${words}`)).join(' ')
}

function argumentSpec({ term, kind, isVariadic }: ArgumentShape): string {
  const mayMiss = term.startsWith('[') ? ':' : ''
  const message = escaped(term.replace(/[<>[\].]/g, ''))
  return quoted(`${isVariadic ? '*' : mayMiss}:${message}:${actionOf(kind)}`)
}

function actionOf(kind: ValueKind): string {
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
