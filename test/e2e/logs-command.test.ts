import { appendFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const SERVICE = { SVC_SERVER_ADDR: '127.0.0.1:1', SVC_AUTHTOKEN: 'no-authtoken-of-anybody' }
const line = (msg: string) =>
  `${JSON.stringify({ level: 'info', time: '2026-11-22T10:57:14.000Z', msg })}\n`

async function startAgent() {
  const folder = temporaryFolder()
  const program = new Program({ args: ['run', '--json'], cwd: folder, env: SERVICE })
  onTestFinished(async () => void (await program.end()))
  await program.ready()
  const run = (...args: string[]) => runProgram({ args, cwd: folder, env: SERVICE })
  return { folder, program, run }
}

/** A program that runs until the test is over, and what it has said. */
function follow(args: string[], cwd: string) {
  const program = new Program({ args, cwd, env: SERVICE })
  onTestFinished(async () => void (await program.end()))
  let seen = ''
  program.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    seen += text
  })
  return { program, seen: () => seen }
}

describe('device-agent logs', () => {
  it('shows what the running agent has logged, for people and for programs', async () => {
    const { run, program } = await startAgent()
    const { code, stdout } = await run('logs')
    expect(code).toBe(0)
    expect(stdout).toMatch(/^[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d info {2}agent is up agent_api=http/m)
    expect(stdout).not.toContain('\x1b')
    const json = await run('logs', '--json', '-n', '1')
    expect(JSON.parse(json.stdout)).toMatchObject({
      level: expect.any(String),
      time: expect.any(String),
    })
    expect(json.stdout.trim().split('\n')).toHaveLength(1)
    // Nobody looks at a terminal there: lines for programs.
    expect(program.stderr).toMatch(/^\{"level":"info".*"msg":"agent is up"/m)
    expect((await run('logs', '-n', '0')).code).toBe(2)
  })

  it('shows what up keeps off a screen that shows how to begin', async () => {
    const folder = temporaryFolder()
    const program = new Program({ args: ['up'], cwd: folder })
    onTestFinished(async () => void (await program.end()))
    let said = ''
    program.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      said += text
    })
    await eventually(() => expect(said).toContain('Tunnels are stored'), 60_000)
    const { stdout } = await runProgram({ args: ['logs'], cwd: folder })
    expect(stdout).toMatch(/ info {2}tunnels restored /)
    expect(program.stderr).not.toContain('tunnels restored')
  })

  it('follows the agent, also over a restart', async () => {
    const { run, folder, program } = await startAgent()
    const { program: following, seen } = follow(['logs', '-f'], folder)
    await eventually(() => expect(seen()).not.toBe(''))
    await run('tunnels', 'add', 'cam.site.test', '8001')
    await eventually(() => expect(seen()).toContain('cam.site.test'))
    await program.end()
    const again = new Program({ args: ['run', '--json'], cwd: folder, env: SERVICE })
    onTestFinished(async () => void (await again.end()))
    await again.ready()
    await eventually(() => expect(seen().match(/agent is up/g)).toHaveLength(2))
    expect((await following.end()).code).toBe(0)
    await again.end()
    expect((await run('logs', '--data-dir', join(folder, 'data'))).stderr).toMatch(
      /is not running|No agent is running/,
    )
  })

  it('reads a file, and follows it when it is moved away', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'agent.log')
    writeFileSync(path, `${line('one')}${line('two')}not of ours \x1b[2J\n`)
    const { stdout } = await runProgram({ args: ['logs', '--file', path, '-n', '2'], env: SERVICE })
    expect(stdout).toMatch(/^\w+ \d+ [\d:]+ info {2}two\nnot of ours {2}\[2J\n$/)
    const { seen } = follow(['logs', '--file', path, '-f'], folder)
    await eventually(() => expect(seen()).toContain('one'))
    appendFileSync(path, line('three').slice(0, 20))
    appendFileSync(path, `${line('three').slice(20)}`)
    await eventually(() => expect(seen()).toMatch(/info {2}three\n/))
    renameSync(path, `${path}.1`)
    writeFileSync(path, line('four'))
    await eventually(() => expect(seen()).toMatch(/info {2}four\n/))
    const none = await runProgram({ args: ['logs', '--file', join(folder, 'no')], env: SERVICE })
    expect([none.code, none.stderr]).toEqual([1, expect.stringContaining('(ENOENT)')])
  })

  it('says where a log may be when nothing is here', async () => {
    const nowhere = await runProgram({
      args: ['logs'],
      cwd: temporaryFolder(),
      env: { ...SERVICE, PATH: '' },
    })
    expect([nowhere.code, nowhere.stderr]).toEqual([1, expect.stringContaining('--file')])
  })
})
