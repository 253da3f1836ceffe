import { describe, expect, it } from 'vitest'
import { GatewayReload } from '../../../src/cli/reload/gateway-reload.ts'
import { captureLog } from '../../helpers/captured-log.ts'

/** A gateway that has no sockets of a service manager: each reload of it fails. */
function openReload(refusal?: string) {
  const told: string[] = []
  const tell = (what: string) => () => void told.push(what)
  const reload = new GatewayReload({
    gateway: {
      release: async () => tell('release')(),
      reclaim: async () => tell('reclaim')(),
      leave: tell('leave'),
    },
    news: {
      reloading: tell('reloading'),
      reloadFailed: tell('failed'),
      leaveTo: (pid) => told.push(`leave to ${pid}`),
    },
    listens: [{ host: '127.0.0.1', port: 8_443 }],
    environment: {},
    refusal,
    log: captureLog().log,
  })
  return { reload, told }
}

describe('a reload that cannot be', () => {
  it('says why, serves on, and may be asked for again', async () => {
    const { reload, told } = openReload()
    await reload.request()
    expect(reload.problem).toMatch(
      /^the reload failed: .*device-gateway\.socket.*127\.0\.0\.1:8443/,
    )
    await reload.request()
    expect(told).toEqual(['reloading', 'failed', 'reloading', 'failed'])
  })

  it('is refused where the gateway is one of several, with what to do instead', async () => {
    const { reload, told } = openReload('restart it instead')
    await reload.request()
    expect(told).toEqual(['reloading', 'failed'])
    expect(reload.problem).toBe('the reload was refused: restart it instead')
  })

  it('is none after a stop: the service manager hears that the gateway stops, and nothing else', async () => {
    const { reload, told } = openReload()
    await reload.stop()
    await reload.request()
    expect([told, reload.problem]).toEqual([[], undefined])
  })
})
