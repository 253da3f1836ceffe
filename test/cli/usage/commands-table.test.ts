import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { createProgram } from '../../../src/cli/program.ts'
import { everyCommand, isGroup, shapeOf } from '../../../src/cli/usage/command-shape.ts'
import { expectTable } from '../../helpers/document-part.ts'

it('the table of docs/reference/commands.md has every command', () => {
  const stdout = new PassThrough()
  const stop = new AbortController().signal
  const program = shapeOf(createProgram({ environment: {}, stdout, stderr: stdout, stop }))
  const commands = [...everyCommand(program)].filter(
    ({ words, shape }) => words.length > 0 && !isGroup(shape),
  )
  const rows = commands.map(({ words, shape }) => {
    const command = [...words, shape.usage].join(' ').trim()
    return [`\`${command}\``, shape.description.replaceAll('|', '\\|')]
  })
  expect(rows.length).toBeGreaterThan(30)
  expectTable('docs/reference/commands.md', 'commands', ['command', 'does'], rows)
})
