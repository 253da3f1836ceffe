import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** An agent in a folder, whose service nobody answers for, and the commands of whoever owns it. */
function agentIn(folder = temporaryFolder()) {
  const env = {
    SVC_SERVER_ADDR: '127.0.0.1:1',
    SVC_AUTHTOKEN: 'no-authtoken-of-anybody',
  }
  let program: Program | undefined
  let agentApi = 'http://127.0.0.1:1'
  const start = async (more: Record<string, string> = {}) => {
    program = new Program({ args: ['run', '--json'], cwd: folder, env: { ...env, ...more } })
    agentApi = (await program.ready<{ agent_api: string }>()).agent_api
  }
  const stop = async () => {
    await program?.end()
    program = undefined
  }
  onTestFinished(stop)
  const run = async (args: string[], more: Record<string, string> = {}) => {
    const { code, stdout, stderr } = await runProgram({
      args: ['token', ...args],
      cwd: folder,
      // What another process can know of the port of this one: nothing.
      env: { ...env, ...more },
    })
    return { code, stdout, stderr }
  }
  const json = async (...args: string[]) => {
    const { code, stdout, stderr } = await run([...args, '--json'])
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout.split('\n')).toHaveLength(2)
    return JSON.parse(stdout)
  }
  const ask = async (path: string, token: string) => {
    const response = await fetch(`${agentApi}${path}`, {
      headers: { authorization: `Bearer ${token}` },
    })
    return { status: response.status, body: JSON.parse(await response.text()) }
  }
  const statusWith = async (token: string) => (await ask('/status', token)).status
  const tokenFile = join(folder, 'data/api-token')
  const owner = () => readFileSync(tokenFile, 'utf8').trim()
  return { folder, start, stop, run, json, ask, statusWith, tokenFile, owner }
}

describe('device-agent token', () => {
  it('makes, lists, rotates and revokes while the agent runs, for good', async () => {
    const { start, stop, json, run, statusWith } = agentIn()
    await start()
    const made = await json('create', 'crane', '--scope', 'write', '--expires', '90d')
    expect(made).toMatchObject({ name: 'crane', scope: 'write', overlap_ends_at: null })
    expect(Date.parse(made.expires_at) - Date.now()).toBeGreaterThan(89 * 86_400_000)
    expect(await statusWith(made.token)).toBe(200)
    const { stdout } = await run(['list'])
    const lines = stdout.split('\n')
    expect(lines[0]).toMatch(/^NAME +SCOPE +ENDS +LAST USED +ID$/)
    expect(lines[1]).toMatch(/^owner +write +never +never +owner$/)
    expect(lines[2]).toMatch(/^crane +write +2\S+Z +2\S+Z +tok_[0-9a-f]{20}$/)
    expect(stdout).not.toContain(made.token)
    const rotated = await json('rotate', 'crane', '--overlap', '10m', '--expires', 'never')
    expect(rotated).toMatchObject({ id: made.id, expires_at: null })
    expect([await statusWith(made.token), await statusWith(rotated.token)]).toEqual([200, 200])
    const last = await json('rotate', made.id, '--overlap', '0')
    expect([await statusWith(made.token), await statusWith(rotated.token)]).toEqual([401, 401])
    expect(await json('revoke', 'crane')).toEqual({ revoked: 'crane' })
    expect(await statusWith(last.token)).toBe(401)
    await stop()
    await start()
    for (const { token } of [made, rotated, last]) expect(await statusWith(token)).toBe(401)
  })

  it('does so while the agent does not run, and the trail names the user of the command line', async () => {
    const { start, stop, json, ask, owner } = agentIn()
    await start()
    await stop()
    const made = await json('create', 'crane')
    const rotated = await json('rotate', 'owner', '--overlap', '0')
    expect(owner()).toBe(rotated.token)
    expect((await json('list')).map(({ name }: { name: string }) => name)).toEqual([
      'owner',
      'crane',
    ])
    await start()
    expect((await ask('/status', made.token)).status).toBe(200)
    const { body } = await ask('/audit', rotated.token)
    expect(body.entries).toMatchObject([
      { action: 'token.rotate', who: { kind: 'command-line', id: null }, target: { id: 'owner' } },
      { action: 'token.create', client: null, target: { name: 'crane' }, result: 'ok' },
      { action: 'token.create', who: { name: 'start of the agent' }, target: { id: 'owner' } },
    ])
  })

  it('rotates its own token while the agent runs, and goes on with the new one', async () => {
    const { start, json, owner, statusWith } = agentIn()
    await start()
    const before = owner()
    const { token } = await json('rotate', 'owner', '--overlap', '0')
    expect(owner()).toBe(token)
    expect([await statusWith(before), await statusWith(token)]).toEqual([401, 200])
    expect(await json('list')).toHaveLength(1)
  })

  it('takes AGENT_API_TOKEN in place of the file, which is gone for good then', async () => {
    const { start, stop, run, owner, statusWith, tokenFile } = agentIn()
    const given = { AGENT_API_TOKEN: 'given-token-of-the-owner' }
    await start()
    const leaked = owner()
    await stop()
    await start(given)
    expect(existsSync(tokenFile)).toBe(false)
    expect((await run(['list'])).stdout).toMatch(/^owner +write +never /m)
    await stop()
    await start()
    expect([await statusWith(leaked), await statusWith(given.AGENT_API_TOKEN)]).toEqual([401, 401])
    expect(await statusWith(owner())).toBe(200)
  })

  it('makes another token when the file was deleted and the agent started again', async () => {
    const { start, stop, owner, statusWith, tokenFile } = agentIn()
    await start()
    const leaked = owner()
    rmSync(tokenFile)
    await stop()
    await start()
    expect([await statusWith(leaked), await statusWith(owner())]).toEqual([401, 200])
  })

  it('shows a new token once, in words', async () => {
    const { start, run } = agentIn()
    await start()
    const { stdout, stderr } = await run(['create', 'site monitor'])
    expect(stdout).toMatch(/^dagt_[\w-]{43}\n\nToken site monitor: scope read, no expiry\./)
    expect(stderr).toBe('')
    const again = await run(['rotate', 'site monitor', '--overlap', '30d'])
    expect(again.stdout).toMatch(/\nThe previous secret works until 2\S+Z\.\n$/)
    const { stdout: list } = await run(['list'])
    expect(list).toMatch(/\n\nThe previous secret of site monitor works until 2\S+Z\.\n$/)
    expect((await run(['revoke', 'site monitor'])).stdout).toBe('Revoked site monitor.\n')
    expect((await run(['list'])).stdout).not.toContain('previous secret')
    expect((await run(['revoke', 'owner'])).stdout).toBe(
      'Revoked owner. The next start of the agent creates a new token in data/api-token.\n',
    )
  })

  it('says in a sentence what cannot be done, running or not', async () => {
    const { start, stop, run } = agentIn()
    const refused = async (args: string[]) => {
      const { code, stdout, stderr } = await run(args)
      expect([code, stdout]).toEqual([1, ''])
      return stderr
    }
    expect(await refused(['list'])).toMatch(/^device-agent: No agent data found in .*\/data\. /)
    await start()
    for (const isRunning of [true, false]) {
      if (!isRunning) await stop()
      expect(await refused(['revoke', 'nobody'])).toMatch(
        /^device-agent: No token is named nobody\./,
      )
      expect(await refused(['create', 'tok_x'])).toMatch(/\/?name:? must have 1 to 64 /)
    }
  })

  it('leaves no data where there is no agent', async () => {
    const { run, folder } = agentIn()
    await run(['create', 'crane'])
    expect(existsSync(join(folder, 'data'))).toBe(false)
  })

  it.each([
    [['create']],
    [['create', 'a', '--scope', 'admin']],
    [['create', 'a', '--expires', 'yesterday']],
    [['create', 'a', '--expires', '2020-01-01']],
    [['rotate', 'a', '--overlap', '-1']],
    [['rotate', 'a', '--overlap', '31d']],
    [['revoke']],
    [['fly']],
  ])('calls %j wrong usage', async (args) => {
    const { code, stdout, stderr } = await runProgram({ args: ['token', ...args] })
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/^error: /)
  })

  it.each([[[]], [['create']], [['list']], [['rotate']], [['revoke']]])(
    'explains itself with %j --help',
    async (args) => {
      const { code, stdout } = await runProgram({ args: ['token', ...args, '--help'] })
      expect([code, stdout]).toEqual([0, expect.stringMatching(/^Usage: device-agent token/)])
    },
  )
})
