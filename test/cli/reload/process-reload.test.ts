import { existsSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { ProcessReload, type ProcessReloadOptions } from '../../../src/cli/reload/process-reload.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { hasEnded } from '../../helpers/has-ended.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

type Service = ProcessReloadOptions['service']

/** Unless told otherwise, a service that cannot pass its sockets on: each reload of it fails. */
function openReload({
  service = {},
  ...options
}: Partial<Omit<ProcessReloadOptions, 'service'>> & { service?: Partial<Service> } = {}) {
  const told: string[] = []
  const tell = (what: string) => () => void told.push(what)
  const { log, lines } = captureLog()
  const reload = new ProcessReload({
    service: {
      release: async () => tell('release')(),
      reclaim: async () => tell('reclaim')(),
      handOver: tell('leave'),
      sockets: () => {
        throw new StartError('nobody tells where it listens')
      },
      ...service,
    },
    news: {
      reloading: tell('reloading'),
      reloadFailed: tell('failed'),
      leaveTo: (pid) => told.push(`leave to ${pid}`),
      bereft: (sentence) => told.push(sentence),
    },
    environment: () => ({ PATH: process.env.PATH }),
    place: () => ({ pid: 2, ppid: 1, firstName: 'systemd' }),
    log,
    ...options,
  })
  onTestFinished(() => reload.stop())
  return { reload, told, lines }
}

/** What a reload starts, for the running test, in a folder of its own. */
function startProgram(text: string): string {
  const folder = temporaryFolder()
  const path = join(folder, 'program.mjs')
  writeFileSync(path, `import { writeFileSync } from 'node:fs'\n${text}`)
  const { argv, execArgv } = process
  process.argv = [process.execPath, path, folder]
  process.execArgv = []
  onTestFinished(() => {
    process.argv = argv
    process.execArgv = execArgv
  })
  return folder
}

const sockets = () => [openSync('/dev/null', 'r')]
/** What a new process does that comes up. */
const SERVING = `
process.on('message', () => process.send('serving'))
process.send('prepared')
`
const stillRuns = 'setInterval(() => {}, 1_000)'

describe('a new process that serves', () => {
  it('is left to, also where the service says that it cannot leave', async () => {
    startProgram(`${SERVING}${stillRuns}`)
    const { reload, told, lines } = openReload({
      service: {
        sockets,
        handOver: () => {
          throw new Error('a socket is gone')
        },
      },
    })
    await reload.request()
    const pid = await reload.left
    onTestFinished(() => void process.kill(pid, 'SIGKILL'))
    expect(told).toEqual(['reloading', 'release', `leave to ${pid}`])
    expect(hasEnded(pid)).toBe(false)
    expect(JSON.stringify(lines)).toContain('a socket is gone')
    expect(reload.problem).toBeUndefined()
  })

  it('is missed when it dies before this one has ended', async () => {
    startProgram(`${SERVING}${stillRuns}`)
    const { reload, told } = openReload({ service: { sockets } })
    await reload.request()
    const pid = await reload.left
    await reload.stop()
    process.kill(pid, 'SIGKILL')
    expect(await reload.bereft).toBe('the new process ended with SIGKILL')
    expect(told.slice(2)).toEqual([
      `leave to ${pid}`,
      'leave',
      'the new process ended with SIGKILL',
    ])
  })

  it('is not missed when it ends as it was told to', async () => {
    startProgram(`${SERVING}process.on('disconnect', () => process.exit(0))`)
    const { reload, told } = openReload({ service: { sockets } })
    await reload.request()
    const pid = await reload.left
    await eventually(() => expect(hasEnded(pid)).toBe(true))
    expect(told.at(-1)).toBe('leave')
  })

  it('is ended by a stop, which needs nothing back that was let go of', async () => {
    startProgram(`process.send('prepared')\n${stillRuns}`)
    const released = createDeferred<void>()
    const release = async () => released.resolve()
    const { reload, told } = openReload({ service: { sockets, release } })
    const requested = reload.request()
    await released.promise
    await reload.stop()
    await requested
    expect(told).toEqual(['reloading'])
  })

  it('is over when a stop is: what was being taken back is', async () => {
    startProgram(
      `${SERVING.replace("'serving'", "'nothing of the kind'")}process.on('message', () => process.exit(1))`,
    )
    const reclaiming = createDeferred<void>()
    const order: string[] = []
    const reclaim = async () => {
      reclaiming.resolve()
      await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
      order.push('back')
    }
    const { reload } = openReload({ service: { sockets, reclaim } })
    const requested = reload.request()
    await reclaiming.promise
    await reload.stop()
    order.push('stopped')
    await requested
    expect(order).toEqual(['back', 'stopped'])
  })

  it('is gone before anything is taken back: it may have written by then', async () => {
    const folder = startProgram(
      `writeFileSync(process.argv[2] + '/pid', String(process.pid))
      process.on('message', () => process.send('nothing of the kind'))
      process.send('prepared')
      ${stillRuns}`,
    )
    const found: boolean[] = []
    const reclaim = async () => {
      found.push(hasEnded(Number(readFileSync(join(folder, 'pid'), 'utf8'))))
    }
    const { reload } = openReload({ service: { sockets, reclaim } })
    await reload.request()
    expect(found).toEqual([true])
  })

  it('is ended by a stop in the same moment', async () => {
    const said = `writeFileSync(process.argv[2] + '/said', '')`
    const folder = startProgram(
      `process.on('message', () => process.send('serving', () => { ${said} }))
      process.send('prepared')
      ${stillRuns}`,
    )
    const { reload, told } = openReload({
      service: {
        sockets,
        release: async () => {
          // After the other process was told: what it says then lies unread when the stop comes.
          setImmediate(() => {
            while (!existsSync(join(folder, 'said')));
            void reload.stop()
          })
        },
      },
    })
    await reload.request()
    expect(told.filter((what) => what.startsWith('leave'))).toEqual([])
  })
})

describe('a service that does not let go', () => {
  it('serves on, and takes back what it let go of late', async () => {
    startProgram(`process.send('prepared')\n${stillRuns}`)
    const hanging = createDeferred()
    let releases = 0
    const { reload, told, lines } = openReload({
      releasedWithinMs: 50,
      service: {
        sockets,
        release: () => {
          releases += 1
          return hanging.promise
        },
      },
    })
    await reload.request()
    expect(reload.problem).toMatch(
      /^the reload failed: releasing the data directory took longer than 50 ms: visitors are served, the management API refuses changes/,
    )
    // Nothing is let go of twice, and whoever asks for that hears why.
    await reload.request()
    expect([told, releases]).toEqual([['reloading', 'failed'], 1])
    expect(lines.at(-1)?.msg).toBe(`cannot start another reload: ${reload.problem}`)
    hanging.resolve()
    await eventually(() => expect(told.slice(2)).toEqual(['reclaim', 'failed']))
    expect(reload.problem).toBe(
      'the reload failed: releasing the data directory took longer than 50 ms',
    )
  })

  it('takes nothing back that it opened no more after a stop', async () => {
    startProgram(`process.send('prepared')\n${stillRuns}`)
    const hanging = createDeferred()
    const { reload, told } = openReload({
      releasedWithinMs: 50,
      service: { sockets, release: () => hanging.promise },
    })
    await reload.request()
    await reload.stop()
    hanging.resolve()
    await new Promise((resolve) => setImmediate(resolve))
    expect(told).toEqual(['reloading', 'failed'])
  })
})

describe('a reload that cannot be', () => {
  it('says why, serves on, and may be asked for again', async () => {
    const { reload, told } = openReload()
    await reload.request()
    expect(reload.problem).toBe('the reload failed: nobody tells where it listens')
    await reload.request()
    expect(told).toEqual(['reloading', 'failed', 'reloading', 'failed'])
  })

  it('is refused with what to do instead, for as long as there is a reason', async () => {
    let refusal: string | undefined = 'restart it instead'
    const { reload, told } = openReload({ refusal: () => refusal })
    await reload.request()
    expect(told).toEqual(['reloading', 'failed'])
    expect(reload.problem).toBe('the reload was refused: restart it instead')
    refusal = undefined
    await reload.request()
    expect(reload.problem).toMatch(/^the reload failed: /)
  })

  it('is refused where the container would end with this process', async () => {
    const place = { pid: 1, ppid: 0, firstName: 'node' }
    const { reload, told } = openReload({ place: () => place })
    await reload.request()
    expect(told).toEqual(['reloading', 'failed'])
    expect(reload.problem).toBe(
      'the reload was refused: the container ends together with this process. Restart the container instead',
    )
  })

  it('is none after a stop: the service manager hears that the gateway stops, and nothing else', async () => {
    const { reload, told } = openReload()
    await reload.stop()
    await reload.request()
    expect([told, reload.problem]).toEqual([[], undefined])
  })
})
