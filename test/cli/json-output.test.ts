import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { createProgram } from '../../src/cli/program.ts'
import { failureLine } from '../../src/cli/program-failure.ts'
import { isService, serviceProgram } from '../../src/cli/service-program.ts'
import { everyCommand, isGroup, shapeOf } from '../../src/cli/usage/command-shape.ts'
import { ROOT } from '../helpers/document-part.ts'

/** Commands that print a line for each of many things, as the page of commands says. */
const OF_LINES = new Set(['doctor', 'logs', 'policy explain'])

function createdProgram() {
  const stdout = new PassThrough()
  const context = { environment: {}, stdout, stderr: new PassThrough() }
  return { program: createProgram({ ...context, stop: new AbortController().signal }), stdout }
}

/** Commands without --json, as the page of commands says. */
const WITHOUT_JSON = [
  ...['health', 'service install', 'service uninstall'],
  ...['policy schema', 'help', 'completion', 'man'],
]

/** Each command with --json, and what its help says of it. */
const EVERY = [...everyCommand(shapeOf(createdProgram().program))].filter(
  ({ words, shape }) => words.length > 0 && !isGroup(shape),
)
const COMMANDS = EVERY.flatMap(({ words, shape }): [string, string][] => {
  const option = shape.options.find(({ names }) => names.includes('--json'))
  return option ? [[words.join(' '), option.description]] : []
})

it('is there for all commands, except those that the page of commands names', () => {
  const names = new Set(COMMANDS.map(([name]) => name))
  const without = EVERY.map(({ words }) => words.join(' ')).filter((name) => !names.has(name))
  expect(without.sort()).toEqual([...WITHOUT_JSON].sort())
  const page = readFileSync(join(ROOT, 'docs/reference/commands.md'), 'utf8')
  for (const name of without)
    expect(page).toMatch(new RegExp(`^\\|.*\`${name}\`.*no \`--json\``, 'm'))
})

it.each(COMMANDS)('%s says in its help that it prints one line, or several', (command, help) => {
  expect(help).toMatch(
    OF_LINES.has(command)
      ? /^print one JSON line per \w+/
      : /^print one JSON line( on stdout|.* when ready)?$/,
  )
})

it.each(COMMANDS)('%s prints a failure as one document', async (command) => {
  const { program, stdout } = createdProgram()
  const args = [...command.split(' '), '--json', '--no-such-option']
  const error = await program.parseAsync(args, { from: 'user' }).catch((thrown) => thrown)
  const line = failureLine(error, args)
  expect(stdout.read()).toBeNull()
  if (isService(args)) expect(line).toBeUndefined()
  else
    expect(JSON.parse(line ?? '')).toEqual({
      error: expect.stringMatching(/--(?:no-such-option|request)\b/),
    })
  expect(line ?? '\n').toMatch(/^[^\n]*\n$/)
})

it('tells no more of a mistake of ours than where to look', () => {
  const line = failureLine(new TypeError('canary'), ['status', '--json'])
  expect(JSON.parse(line ?? '')).toEqual({ error: 'Unexpected error. See stderr.' })
})

it('leaves stdout to other commands, and to the lines of services', () => {
  const failed = new StartError('It failed.')
  expect(failureLine(failed, ['status'])).toBeUndefined()
  for (const service of [['run'], ['up'], ['gateway'], ['gateway', '--json']])
    expect(failureLine(failed, [...service, '--json'])).toBeUndefined()
  expect(failureLine(failed, ['gateway', 'invites', '--json'])).toBe('{"error":"It failed."}\n')
})

it('has no document for help that was asked for', async () => {
  const { program } = createdProgram()
  const args = ['status', '--json', '--help']
  const error = await program.parseAsync(args, { from: 'user' }).catch((thrown) => thrown)
  expect(failureLine(error, args)).toBeUndefined()
})

describe('the program of a service', () => {
  const context = { environment: {}, stdout: new PassThrough(), stderr: new PassThrough() }
  const programOf = (...args: string[]) =>
    serviceProgram({ ...context, stop: new AbortController().signal }, args)

  it.each([['run'], ['run', '--json'], ['up'], ['gateway'], ['gateway', '--no-such-option']])(
    'has one command for %s %s',
    (...args) => {
      expect(programOf(...args)?.commands.map((command) => command.name())).toEqual([args[0]])
      expect(programOf(...args)?.commands[0]?.commands).toEqual([])
    },
  )

  it.each([
    [],
    ['status'],
    ['--help'],
    ['run', '--help'],
    ['gateway', '-h'],
    ['gateway', '--json', 'setup'],
    ['gateway', 'show'],
    ['gateway', '--', 'show'],
  ])('is the program with all commands for %j', (...args) => {
    expect(programOf(...args)).toBeUndefined()
  })
})
