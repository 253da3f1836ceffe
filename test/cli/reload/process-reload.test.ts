import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { ProcessReload } from '../../../src/cli/reload/process-reload.ts'
import { captureLog } from '../../helpers/captured-log.ts'

/** A service that cannot pass its sockets on: each reload of it fails. */
function openReload(refusal: () => string | undefined = () => undefined) {
  const told: string[] = []
  const tell = (what: string) => () => void told.push(what)
  const reload = new ProcessReload({
    service: {
      release: async () => tell('release')(),
      reclaim: async () => tell('reclaim')(),
      leave: tell('leave'),
      sockets: () => {
        throw new StartError('nobody tells where it listens')
      },
    },
    api: 'API',
    news: {
      reloading: tell('reloading'),
      reloadFailed: tell('failed'),
      leaveTo: (pid) => told.push(`leave to ${pid}`),
    },
    environment: () => ({}),
    refusal,
    log: captureLog().log,
  })
  return { reload, told }
}

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
    const { reload, told } = openReload(() => refusal)
    await reload.request()
    expect(told).toEqual(['reloading', 'failed'])
    expect(reload.problem).toBe('the reload was refused: restart it instead')
    refusal = undefined
    await reload.request()
    expect(reload.problem).toMatch(/^the reload failed: /)
  })

  it('is none after a stop: the service manager hears that the gateway stops, and nothing else', async () => {
    const { reload, told } = openReload()
    await reload.stop()
    await reload.request()
    expect([told, reload.problem]).toEqual([[], undefined])
  })
})
