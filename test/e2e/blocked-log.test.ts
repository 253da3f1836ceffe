import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { FREE_PORTS } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const MAIN = join(import.meta.dirname, '../../dist/main.js')
/** At level debug each writes a line: far more than a pipe holds. */
const REQUESTS = 4_000

it('goes on serving, and stops in time, while nobody reads its log', async () => {
  const child = spawn(process.execPath, [MAIN, 'run', '--json'], {
    cwd: temporaryFolder(),
    env: { ...FREE_PORTS, PATH: process.env.PATH ?? '', LOG_LEVEL: 'trace' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  // Nobody listens to child.stderr, so the pipe fills up.
  const [line] = await once(child.stdout, 'data')
  const { agent_api: api } = JSON.parse(String(line))
  for (let sent = 0; sent < REQUESTS; sent += 100) {
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => fetch(`${api}/tunnels`).then(({ status }) => status)),
    )
    expect(new Set(answers)).toEqual(new Set([401]))
  }
  child.kill('SIGTERM')
  const [code] = await once(child, 'exit')
  expect(code).toBe(0)
})

it('writes its log into the pipe of a shell', () => {
  const command = `timeout -s TERM 2 "${process.execPath}" "${MAIN}" run 2>&1 >/dev/null | cat`
  const env = { ...FREE_PORTS, PATH: process.env.PATH ?? '' }
  const output = execFileSync('sh', ['-c', command], { cwd: temporaryFolder(), env })
  expect(String(output)).toContain('agent is up')
  expect(String(output)).toContain('stopping')
})
