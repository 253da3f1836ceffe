import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ServiceManager } from '../../../src/cli/service/supervision.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { listenAsServiceManager } from '../../helpers/notify-socket.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

async function open(address: string, watchdogUsec?: string, watchdogPid?: string) {
  const received = listenAsServiceManager(address)
  const manager = new ServiceManager({
    notifySocket: address,
    watchdogUsec,
    watchdogPid,
    log: captureLog().log,
  })
  await manager.open()
  onTestFinished(() => manager.close())
  return { manager, received }
}

describe('ServiceManager', () => {
  it.each([['a path'], ['an abstract name']])(
    'reaches %s in the order of its calls',
    async (kind) => {
      const address =
        kind === 'a path' ? join(temporaryFolder(), 'notify') : `@device-agent-test-${process.pid}`
      const { manager, received } = await open(address)
      manager.ready('2 of 2 tunnels online')
      manager.status('1 of 2 tunnels online;\nservice unreachable')
      manager.stopping()
      await eventually(() => expect(received).toHaveLength(3))
      expect(received).toEqual([
        'READY=1\nSTATUS=2 of 2 tunnels online',
        'STATUS=1 of 2 tunnels online; service unreachable',
        'STOPPING=1\nSTATUS=stopping',
      ])
    },
  )

  it('says a status only when it changed', async () => {
    const { manager, received } = await open(join(temporaryFolder(), 'notify'))
    manager.ready('fine')
    manager.status('fine')
    manager.status('not fine')
    await eventually(() => expect(received.at(-1)).toBe('STATUS=not fine'))
    expect(received).toHaveLength(2)
  })

  it('says since when it is reloading, on the clock of the service manager', async () => {
    const { manager, received } = await open(join(temporaryFolder(), 'notify'))
    const usec = () => process.hrtime.bigint() / 1_000n
    const before = usec()
    manager.reloading()
    const after = usec()
    await eventually(() => expect(received).toHaveLength(1))
    const [, since = '0'] = /^RELOADING=1\nMONOTONIC_USEC=(\d+)$/.exec(received[0] ?? '') ?? []
    expect([before <= BigInt(since), BigInt(since) <= after]).toEqual([true, true])
  })

  it('pings while the check passes and stops when it throws', async () => {
    const { manager, received } = await open(join(temporaryFolder(), 'notify'), '20000')
    let checks = 0
    manager.startWatchdog(() => {
      checks += 1
      if (checks > 2) throw new Error('database gone')
    })
    await eventually(() => expect(checks).toBeGreaterThan(4))
    expect(received).toEqual(['WATCHDOG=1', 'WATCHDOG=1'])
  })

  it('leaves the watchdog of another process alone', async () => {
    const address = join(temporaryFolder(), 'notify')
    const { manager: foreign } = await open(address, '2000', '1')
    const own = new ServiceManager({
      ...{ notifySocket: address, watchdogUsec: '2000', watchdogPid: String(process.pid) },
      log: captureLog().log,
    })
    onTestFinished(() => own.close())
    const checks = { foreign: 0, own: 0 }
    foreign.startWatchdog(() => {
      checks.foreign += 1
    })
    own.startWatchdog(() => {
      checks.own += 1
    })
    await eventually(() => expect(checks.own).toBeGreaterThan(2))
    expect(checks.foreign).toBe(0)
  })

  it('says nothing once another process is the service, until that has died', async () => {
    const { manager, received } = await open(join(temporaryFolder(), 'notify'), '20000')
    let checks = 0
    manager.startWatchdog(() => {
      checks += 1
    })
    await eventually(() => expect(received).toContain('WATCHDOG=1'))
    manager.leaveTo(4242)
    manager.status('not heard')
    manager.stopping()
    manager.returnToEnd('the other one ended with SIGKILL')
    const last = () => received.slice(received.indexOf('MAINPID=4242'))
    // For systemd's watchdog it is the service again, and has nothing to check any more.
    await eventually(() => {
      expect(received).toContain('MAINPID=4242')
      expect(last()).toContain('WATCHDOG=1')
    })
    expect(last().slice(0, 2)).toEqual([
      'MAINPID=4242',
      `MAINPID=${process.pid}\nSTOPPING=1\nSTATUS=the other one ended with SIGKILL`,
    ])
    const checked = checks
    await eventually(() => expect(last().length).toBeGreaterThan(5))
    expect(checks).toBe(checked)
  })

  it('does nothing without a service manager', async () => {
    const { log, lines } = captureLog()
    const manager = new ServiceManager({
      notifySocket: undefined,
      watchdogUsec: undefined,
      watchdogPid: undefined,
      log,
    })
    await manager.open()
    manager.ready('fine')
    manager.close()
    expect(lines).toEqual([])
  })
})
