import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const GOOD = 'on_http_request:\n  - actions: [{type: deny}]\n'
const BAD = 'on_http_request:\n  - actions: [{type: fly}, {type: deny, config: {status_code: x}}]\n'

async function run(...args: string[]) {
  const cwd = temporaryFolder()
  writeFileSync(join(cwd, 'good.yaml'), GOOD)
  writeFileSync(join(cwd, 'bad.yaml'), BAD)
  return runProgram({ args: [...args, '--json'], cwd })
}

describe('a command with --json that fails', () => {
  it.each([
    [['tunnels', 'list', '--data-dir', 'data']],
    [['policy', 'explain', 'bad.yaml', '--request', 'GET https://a.test/']],
    [['fleet', 'plan', 'missing.yaml']],
    [['gateway', 'invites', '--api-url', 'http://127.0.0.1:1']],
    [['restore', 'missing.backup', '--data-dir', 'data']],
  ])('prints the same text on stdout as on stderr: %j', async (args) => {
    const { code, stdout, stderr } = await run(...args)
    expect(code).toBe(1)
    expect(stdout).toMatch(/^\{"error":.*\}\n$/)
    const { error } = JSON.parse(stdout)
    expect(stderr).toContain(`device-agent: ${error}`)
  })

  it('prints what is wrong with its arguments', async () => {
    const { code, stdout } = await run('tunnels', 'show')
    expect([code, JSON.parse(stdout)]).toEqual([2, { error: "missing required argument 'tunnel'" }])
  })
})

describe('policy check --json', () => {
  it('prints an empty list for good files', async () => {
    const { code, stdout } = await run('policy', 'check', 'good.yaml', 'good.yaml')
    expect([code, stdout]).toEqual([0, '{"problems":[]}\n'])
  })

  it('prints the problems of all files as one document, and fails', async () => {
    const { code, stdout } = await run('policy', 'check', 'missing.yaml', 'good.yaml', 'bad.yaml')
    expect(code).toBe(1)
    const { problems } = JSON.parse(stdout)
    expect(problems[0]).toMatchObject({ file: 'missing.yaml', line: null, severity: 'error' })
    expect(problems[1]).toMatchObject({ file: 'bad.yaml', line: 2, severity: 'error' })
    expect(problems.length).toBeGreaterThan(2)
  })
})
