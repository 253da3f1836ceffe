import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const SERVICE = { SVC_SERVER_ADDR: '127.0.0.1:1', SVC_AUTHTOKEN: 'no-authtoken-of-anybody' }

/** An agent in a folder that has run once. */
async function agentFolder() {
  const folder = temporaryFolder()
  const start = async () => {
    const program = new Program({ args: ['run', '--json'], cwd: folder, env: SERVICE })
    onTestFinished(async () => void (await program.end()))
    await program.ready()
    return program
  }
  await (await start()).end()
  const path = join(folder, 'data/device-id')
  return {
    start,
    path,
    id: () => readFileSync(path, 'utf8').trim(),
    reset: (...args: string[]) =>
      runProgram({ args: ['identity', 'reset', ...args], cwd: folder, env: SERVICE }),
  }
}

describe('device-agent identity reset', () => {
  it('says what it means, and changes nothing until it is told to', async () => {
    const { id, reset } = await agentFolder()
    const before = id()
    const { code, stdout, stderr } = await reset()
    expect([code, stdout, id()]).toEqual([1, '', before])
    expect(stderr).toContain('refused here as a\nconflict')
    expect(stderr).toContain('Nothing is changed yet. Add --yes to continue.')
  })

  it('gives the device another identity, and says what became of it', async () => {
    const { id, reset, path } = await agentFolder()
    const before = id()
    const { code, stdout } = await reset('--yes')
    expect(code).toBe(0)
    expect(id()).toMatch(/^dev_[0-9a-f]{24}$/)
    expect(id()).not.toBe(before)
    expect(stdout).toContain(`New device id: ${id()} (previous: ${before}).`)
    expect(stdout).toContain('uses the new identity after its next start')
    expect(statSync(path).mode & 0o777).toBe(0o600)
  })

  it('says for programs whether a restart is needed', async () => {
    const { id, reset, start } = await agentFolder()
    const program = await start()
    const before = id()
    const { code, stdout } = await reset('--yes', '--json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toEqual({
      device_id: id(),
      device_id_before: before,
      restart_needed: true,
    })
    await program.end()
  })

  it('leaves no identity in a folder without an agent', async () => {
    const { code, stderr } = await runProgram({
      args: ['identity', 'reset', '--yes'],
      cwd: temporaryFolder(),
      env: SERVICE,
    })
    expect(code).toBe(1)
    expect(stderr).toContain('No agent data found in')
  })
})
