import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { Program, runProgram } from '../../helpers/program.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

it('writes a document of any size to a pipe to its end', async () => {
  const cwd = temporaryFolder()
  const devices = Array.from({ length: 3_000 }, (_, at) => {
    const name = `camera-with-a-long-name-in-a-large-fleet-${at}`
    const token = { tags: ['camera', 'berlin'], api_token: 'x' }
    return `${JSON.stringify({ name, agent_domain: `${name}.site.test`, ...token })}\n`
  })
  writeFileSync(join(cwd, 'fleet-devices.jsonl'), devices.join(''), { mode: 0o600 })
  writeFileSync(join(cwd, 'fleet.yaml'), 'version: 1\nsets: {}\n')
  const { code, stdout } = await runProgram({
    args: ['fleet', 'plan', 'fleet.yaml', '--json'],
    cwd,
  })
  expect(code).toBe(4)
  expect(JSON.parse(stdout).devices).toHaveLength(3_000)
})

it('ends without a stack trace when nobody reads its output', async () => {
  const program = new Program({ args: ['doctor', '--json'], cwd: temporaryFolder() })
  program.child.stdout?.destroy()
  const { code, stderr } = await program.ended
  expect(code).toBe(141)
  expect(stderr).toBe('')
})
