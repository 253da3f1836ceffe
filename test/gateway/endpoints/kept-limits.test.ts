import { cpSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { EndpointPolicies } from '../../../src/gateway/endpoints/endpoint-policies.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import {
  KEEP_EVERY_MS,
  KeptLimits,
  type Moment,
} from '../../../src/gateway/endpoints/kept-limits.ts'
import { LimiterTables } from '../../../src/policy/limit/limiter-tables.ts'
import type { CompiledPolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { forward, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { connectSdk, type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HOUR = 3_600_000
const CAM = { host: 'cam.site.test' }

const limited = (rate: string, capacity = 3, bucketKey = 'conn.client_ip') =>
  JSON.stringify({
    on_http_request: [
      {
        actions: [
          {
            type: 'rate-limit',
            config: {
              name: 'few',
              algorithm: 'sliding_window',
              capacity,
              rate,
              bucket_key: [bucketKey],
            },
          },
        ],
      },
    ],
  })
const DAILY = limited('24h')

describe('a gateway that starts again', () => {
  /** The machine's clock, that does not wait long for the file of limits. */
  const hasty: Clock = {
    ...systemClock,
    sleep: (ms, signal) => systemClock.sleep(ms === KEEP_EVERY_MS ? 20 : ms, signal),
  }

  async function serve(running: RunningGateway, policy = DAILY) {
    const service = await startDeviceService()
    return forward(await connectSdk(running), service, { policy })
  }

  const statuses = async (running: RunningGateway, count: number) => {
    const seen: number[] = []
    for (let n = 0; n < count; n += 1) seen.push((await visit(running, CAM)).status)
    return seen
  }

  it('goes on with what a limit of a day has counted, and with none that is shorter or another', async () => {
    const first = await startGateway()
    await serve(first)
    expect(await statuses(first, 2)).toEqual([200, 200])
    await first.gateway.stop()
    expect(statSync(join(first.dataDir, 'limits.json')).mode & 0o777).toBe(0o600)
    const { dataDir, authtoken } = first
    const second = await startGateway({ dataDir, authtoken })
    await serve(second)
    expect(await statuses(second, 3)).toEqual([200, 429, 429])
    await second.gateway.stop()
    const third = await startGateway({ dataDir, authtoken })
    await serve(third)
    expect(await statuses(third, 1)).toEqual([429])
    await third.gateway.stop()
    const other = await startGateway({ dataDir, authtoken })
    await serve(other, limited('12h'))
    expect(await statuses(other, 1)).toEqual([200])
  })

  it('goes on with what was written before it was killed', async () => {
    const running = await startGateway({ clock: hasty })
    await serve(running)
    expect(await statuses(running, 3)).toEqual([200, 200, 200])
    const path = join(running.dataDir, 'limits.json')
    const read = () => (existsSync(path) ? readFileSync(path, 'utf8') : '')
    // Each question is a reason to write. What is being written may be from before the third; what
    // follows it is not.
    for (let time = 0; time < 2; time += 1) {
      const before = read()
      expect(await statuses(running, 1)).toEqual([429])
      await eventually(() => expect(read()).not.toBe(before))
    }
    const dataDir = temporaryFolder()
    cpSync(running.dataDir, dataDir, { recursive: true })
    const next = await startGateway({ dataDir, authtoken: running.authtoken })
    await serve(next)
    expect(await statuses(next, 1)).toEqual([429])
  })
})

describe('KeptLimits', () => {
  const PLACE = { protocol: 'https' as const, host: 'cam.site.test', ownerId: 'bot_1' }

  function start(path: string, moment: Moment, { maxBytes }: { maxBytes?: number } = {}) {
    const clock = new ManualClock(moment.at)
    const captured = captureLog()
    const { log } = captured
    const limits = new LimiterTables({ clock, log })
    const policies = new EndpointPolicies({ clock, log, limits })
    const kept = new KeptLimits({
      path,
      registry: new EndpointRegistry({ clock }),
      policies,
      tables: limits,
      moment: () => ({ ...moment, upMs: moment.upMs + clock.monotonic() }),
      ...(maxBytes !== undefined && { maxBytes }),
      clock,
      log,
    })
    kept.start()
    // Before its folder goes.
    onTestFinished(() => kept.stop())
    const compile = (policy: string, place = PLACE) => {
      const compiled = policies.compile(policy, { ...place, credentialId: null })
      policies.remember(place, compiled)
      return compiled
    }
    return { clock, kept, compile, logged: captured.text }
  }

  const take = (policy: CompiledPolicy, key = 'client') =>
    policy.limiters[0]?.tryCount(key, '192.0.2.1')
  const MOMENT: Moment = { at: Date.UTC(2030, 0, 1), boot: 'a', upMs: 0 }

  /** A file in which the client has no request left. */
  async function usedUp() {
    const path = join(temporaryFolder(), 'limits.json')
    const { kept, compile } = start(path, MOMENT)
    const policy = compile(limited('24h', 1))
    expect(take(policy)).toBe(0)
    await kept.stop()
    return path
  }

  const takeAfter = async (path: string, change: Partial<Moment>, place = PLACE) => {
    const next = start(path, { ...MOMENT, ...change })
    const waitMs = take(next.compile(limited('24h', 1), place))
    await next.kept.stop()
    return { waitMs, logged: next.logged() }
  }

  it.each<[string, Partial<Moment>, number]>([
    ['after an hour', { upMs: HOUR }, 23 * HOUR],
    ['after a reboot and an hour', { boot: 'b', at: MOMENT.at + HOUR }, 23 * HOUR],
    ['by a clock that has gone back', { boot: 'b', at: 0 }, 24 * HOUR],
    [
      'by a clock that was set to next year, without a reboot',
      { upMs: HOUR, at: MOMENT.at * 2 },
      23 * HOUR,
    ],
    ['after a day', { upMs: 24 * HOUR + 1_000 }, 0],
  ])('tells how long the rest of a window is %s', async (_when, moment, expected) => {
    const { waitMs } = await takeAfter(await usedUp(), moment)
    expect(Math.abs((waitMs ?? -1) - expected)).toBeLessThan(1_100)
  })

  it('gives nobody the counts of another account or host', async () => {
    const path = await usedUp()
    expect((await takeAfter(path, {}, { ...PLACE, ownerId: 'bot_2' })).waitMs).toBe(0)
    expect((await takeAfter(path, {}, { ...PLACE, host: 'door.site.test' })).waitMs).toBe(0)
    expect((await takeAfter(path, {})).waitMs).toBeGreaterThan(0)
  })

  it('begins anew beside a file that is damaged, and says so', async () => {
    const path = await usedUp()
    const whole = readFileSync(path, 'utf8')
    const damaged = [
      '',
      'garbage',
      whole.slice(0, -20),
      whole.replace('"capacity":1', '"capacity":2'),
      whole.replace('\n', '\n '),
    ]
    for (const text of damaged) {
      writeFileSync(path, text)
      const { waitMs, logged } = await takeAfter(path, {})
      expect([waitMs, logged.includes('the file with rate limits is damaged')]).toEqual([0, true])
    }
  })

  it('writes when something was counted, after 10 s at the latest, and else nothing', async () => {
    const path = join(temporaryFolder(), 'limits.json')
    const { kept, clock, compile } = start(path, MOMENT)
    const policy = compile(limited('24h', 5))
    await eventually(() => expect(clock.sleeping).toBe(1))
    const empty = readFileSync(path, 'utf8')
    take(policy)
    const look = async () => {
      await clock.advance(KEEP_EVERY_MS)
      await eventually(() => expect(clock.sleeping).toBe(1))
      return readFileSync(path, 'utf8')
    }
    const counted = await look()
    expect(counted).not.toBe(empty)
    const { ino } = statSync(path)
    await look()
    expect(statSync(path).ino).toBe(ino)
    await kept.stop()
  })

  it('keeps small limits where a large one has no room, and says that', async () => {
    const path = join(temporaryFolder(), 'limits.json')
    const first = start(path, MOMENT, { maxBytes: 2_000 })
    const crowded = first.compile(limited('24h', 1), { ...PLACE, host: 'crowded.site.test' })
    for (let n = 0; n < 100; n += 1) take(crowded, `client ${n}`)
    take(first.compile(limited('24h', 1)))
    await first.kept.stop()
    expect(first.logged()).toContain('too many keys to save')
    expect(statSync(path).size).toBeLessThan(3_000)
    expect((await takeAfter(path, {})).waitMs).toBeGreaterThan(0)
  })

  it.each([
    ['keeps to its bound with many small limits', 0, 2_100],
    ['keeps nothing of windows that have passed', 25 * HOUR, 200],
  ])('%s', async (_, laterMs, most) => {
    const path = join(temporaryFolder(), 'limits.json')
    const first = start(path, MOMENT, { maxBytes: 2_000 })
    for (let n = 0; n < 100; n += 1) {
      take(first.compile(limited('24h', 1), { ...PLACE, host: `cam${n}.site.test` }))
    }
    await first.clock.advance(laterMs)
    await first.kept.stop()
    expect(statSync(path).size).toBeLessThan(most)
  })

  it('keeps no window below ten minutes', async () => {
    const path = join(temporaryFolder(), 'limits.json')
    const first = start(path, MOMENT)
    const short = first.compile(limited('590s', 1))
    take(short)
    const long = first.compile(limited('600s', 1), { ...PLACE, host: 'long.site.test' })
    take(long)
    await first.kept.stop()
    const next = start(path, MOMENT)
    expect(take(next.compile(limited('590s', 1)))).toBe(0)
    const place = { ...PLACE, host: 'long.site.test' }
    expect(take(next.compile(limited('600s', 1), place))).toBeGreaterThan(0)
  })
})
