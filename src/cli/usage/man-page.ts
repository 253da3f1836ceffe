import { type CommandShape, everyCommand, isGroup } from './command-shape.ts'

export interface ManPage {
  readonly program: CommandShape
  readonly version: string
  readonly settings: readonly { name: string; fallback: string; meaning: string }[]
}

const FILES: readonly (readonly [string, string])[] = [
  ['/etc/device-agent/agent.env', 'settings of the service device-agent'],
  ['/etc/credstore/svc-authtoken', 'authtoken of device-agent, readable only by root'],
  ['/var/lib/device-agent', 'data of device-agent'],
  ['/run/device-agent/agent.sock', 'local socket for commands on the device, no token needed'],
  ['/etc/device-gateway/gateway.env', 'settings of the service device-gateway'],
  ['/var/lib/device-gateway', 'data of device-gateway'],
]

const EXIT_STATUS: readonly (readonly [string, string])[] = [
  ['0', 'good'],
  ['1', 'failed, or a check failed; see standard error'],
  ['2', 'wrong usage'],
  ['3', 'fleet and gateway drain: work is left, for example at offline devices'],
  ['4', 'fleet: devices are in no set, all others match the file'],
]

/** The manual in the macros of man(7). It holds no date, so that two builds of one version are the same. */
export function manPage({ program, version, settings }: ManPage): string {
  const title = program.name.toUpperCase()
  const commands = [...everyCommand(program)].filter(({ words }) => words.length > 0)
  return `${[
    `.TH ${title} 1 "" "${escaped(`${program.name} ${version}`)}" "User Commands"`,
    '.SH NAME',
    `${escaped(program.name)} \\- ${escaped(lowered(program.description))}`,
    '.SH SYNOPSIS',
    `.B ${escaped(program.name)}`,
    '.I command',
    '[\\fIoptions\\fR]',
    '.SH DESCRIPTION',
    escaped(program.description),
    'For details of a command, use \\fB\\-\\-help\\fR.',
    ...program.options.flatMap(({ flags, description }) => entry(bold(flags), description)),
    '.SH COMMANDS',
    ...commands.flatMap(({ words, shape }) => commandPart(words, shape)),
    '.SH ENVIRONMENT',
    'Settings come from the environment or from \\fB.env\\fR in the current directory.',
    ...settings.flatMap(({ name, fallback, meaning }) =>
      entry(bold(name), fallback === '' ? meaning : `${meaning} [${fallback}]`),
    ),
    '.SH FILES',
    ...FILES.flatMap(([path, what]) => entry(bold(path), what)),
    '.SH EXIT STATUS',
    ...EXIT_STATUS.flatMap(([code, what]) => entry(bold(code), what)),
    '.SH SEE ALSO',
    '.BR systemctl (1),',
    '.BR journalctl (1)',
  ].join('\n')}\n`
}

/** A command with its options; nothing for a group. */
function commandPart(words: readonly string[], shape: CommandShape): string[] {
  if (isGroup(shape)) return []
  const usage = shape.usage === '' ? '' : ` \\fI${escaped(shape.usage)}\\fR`
  const options = shape.options.filter(({ names }) => !names.includes('--help'))
  return [
    `.SS "${words.map(escaped).join(' ')}${usage}"`,
    `${escaped(sentence(shape.description))}`,
    ...options.flatMap(({ flags, description }) => entry(bold(flags), description)),
  ]
}

function entry(term: string, text: string): string[] {
  return ['.TP', term, escaped(text)]
}

const bold = (text: string) => `\\fB${escaped(text)}\\fR`
const lowered = (text: string) => (text.charAt(0).toLowerCase() + text.slice(1)).replace(/\.$/, '')
const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`

/** Text for roff: no line is a request, and its hyphens can be copied. */
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\(rs')
    .replaceAll('-', '\\-')
    .replaceAll('"', '\\(dq')
    .replaceAll('…', '\\&...')
    .replace(/^([.'])/gm, '\\&$1')
}
