import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
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

it('writes its log into the pipe of a shell', async () => {
  const cwd = temporaryFolder()
  const start = `echo $$ > pid; exec "${process.execPath}" "${MAIN}" run`
  const shell = spawn('sh', ['-c', `sh -c '${start}' 2>&1 >/dev/null | cat`], {
    cwd,
    env: { ...FREE_PORTS, PATH: process.env.PATH ?? '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  shell.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  const ended = once(shell, 'close')
  const signal = (name: NodeJS.Signals) =>
    process.kill(Number(readFileSync(join(cwd, 'pid'), 'utf8')), name)
  onTestFinished(() => void (shell.exitCode === null && signal('SIGKILL')))
  await eventually(() => expect(output).toContain('agent is up'))
  signal('SIGTERM')
  await ended
  expect(output).toContain('stopping')
})
