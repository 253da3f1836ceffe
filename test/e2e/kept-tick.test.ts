import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { FREE_PORTS, Program } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Asked by a signal, it says how many of the ticks of the start are left behind five collections. */
const PROBE = `
import { executionAsyncResource } from 'node:async_hooks'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

const ticks = []
const queue = process.nextTick
process.nextTick = (work, ...words) =>
  queue.call(process, () => {
    ticks.push(new WeakRef(executionAsyncResource()))
    work(...words)
  })
process.once('SIGUSR2', async () => {
  process.nextTick = queue
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  for (let round = 0; round < 5; round += 1) {
    collect()
    await sleep(10)
  }
  const left = ticks.filter((tick) => tick.deref())
  process.stderr.write('ticks left: ' + left.length + '\\n')
})
`

it.each(['run', 'gateway'])(
  '%s keeps one tick, so that V8 keeps what ticks look like',
  async (service) => {
    const folder = temporaryFolder()
    const probe = join(folder, 'probe.mjs')
    writeFileSync(probe, PROBE)
    const NODE_OPTIONS = `--import=${pathToFileURL(probe)}`
    const env = { ...FREE_PORTS, SVC_SERVER_ADDR: '127.0.0.1:1', NODE_OPTIONS }
    const program = new Program({ args: [service, '--json'], cwd: folder, env })
    onTestFinished(() => program.end('SIGKILL').then(() => {}))
    await program.ready()
    process.kill(program.pid ?? 0, 'SIGUSR2')
    await eventually(() => expect(program.stderr).toContain('ticks left: 1\n'))
  },
)
