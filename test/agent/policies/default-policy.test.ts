import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { KeptValues } from '../../../src/agent/kept-values.ts'
import { DefaultPolicy } from '../../../src/agent/policies/default-policy.ts'
import { shippedPolicyPath } from '../../../src/agent/policies/shipped-policy.ts'
import { TUNNEL_MIGRATIONS } from '../../../src/agent/tunnel-store.ts'
import { AppError, StartError } from '../../../src/base/app-error.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { openDatabase } from '../../../src/store/database.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const GOOD = '{ "on_http_request": [] }'
const OTHER = '{ "on_http_response": [] }'
const LAST = '{ "on_tcp_connect": [] }'

function setUp() {
  const path = join(temporaryFolder(), 'default-policy.json')
  const clock = new ManualClock()
  const captured = captureLog()
  const log = captured.log
  const database = openDatabase({
    path: ':memory:',
    migrations: TUNNEL_MIGRATIONS,
    applicationId: 1,
    log,
    clock,
  })
  onTestFinished(() => database.close())
  const checked: object[] = []
  let holdUp = (_document: object): Promise<void> => Promise.resolve()
  const start = async () => {
    const policy = new DefaultPolicy({
      path,
      kept: new KeptValues(database),
      check: async (document) => {
        checked.push(document)
        await holdUp(document)
        if ('three' in document) return Array(3).fill({ pointer: '/three', detail: 'is one.' })
        if ('at_the_root' in document) return [{ pointer: '', detail: 'It is wrong.' }]
        return 'bad_rule' in document ? [{ pointer: '/bad_rule', detail: 'is unknown' }] : []
      },
      everyMs: 1_000,
      clock,
      log,
    })
    onTestFinished(() => policy.stop())
    let changes = 0
    await policy.start(() => {
      changes += 1
    })
    return { policy, changes: () => changes }
  }
  const onCheck = (hold: typeof holdUp) => {
    holdUp = hold
  }
  return { path, clock, captured, checked, start, onCheck }
}

describe('DefaultPolicy', () => {
  it('loads the file', async () => {
    const { path, clock, start } = setUp()
    writeFileSync(path, GOOD)
    const { policy } = await start()
    expect(policy.current).toEqual({ on_http_request: [] })
    expect(policy.status).toEqual({ source: 'file', loadedAt: clock.now() })
  })

  it.each([
    [undefined, /^The default policy .*default-policy\.json does not exist\.$/],
    ['{\n  "a": 1,\n}', /default-policy\.json is not valid JSON: line 3, column 1\.$/],
    ['', /default-policy\.json is not valid JSON: line 1, column 1\.$/],
    ['[]', /default-policy\.json must be a JSON object: line 1, column 1\.$/],
    ['null', /default-policy\.json must be a JSON object: line 1, column 1\.$/],
    ['{"bad_rule": 1}', /default-policy\.json is invalid: \/bad_rule is unknown$/],
    [
      '{"three": 1}',
      /is invalid: \/three is one, and 2 more: run device-agent policy check \S+\.json\.$/,
    ],
    ['{"at_the_root": 1}', /default-policy\.json is invalid: It is wrong\.$/],
    [
      `{"a": ${'['.repeat(9_000)}${']'.repeat(9_000)}}`,
      /default-policy\.json has more than 32 levels of nesting\.$/,
    ],
    [
      `{"a": "${'x'.repeat(70_000)}"}`,
      /Cannot read the default policy .*: it is larger than 65536 bytes\.$/,
    ],
  ])('stops the start with one sentence when it never had another: %j', async (text, sentence) => {
    const { path, start } = setUp()
    if (text !== undefined) writeFileSync(path, text)
    await expect(start()).rejects.toThrow(StartError)
    await expect(start()).rejects.toThrow(sentence)
  })

  it.each([undefined, '{', '[]', '{"bad_rule": 1}'])(
    'starts with the last good copy when the file became %j, and says so',
    async (text) => {
      const { path, captured, start } = setUp()
      writeFileSync(path, GOOD)
      await start()
      rmSync(path)
      if (text !== undefined) writeFileSync(path, text)
      const { policy } = await start()
      expect(policy.current).toEqual({ on_http_request: [] })
      expect(policy.status).toMatchObject({ source: 'kept', problem: expect.any(String) })
      expect(captured.lines.at(-1)).toMatchObject({ level: 'error' })
    },
  )

  it('takes a changed file up, and tells when another policy is in force', async () => {
    const { path, clock, start } = setUp()
    writeFileSync(path, GOOD)
    const { policy, changes } = await start()
    writeFileSync(path, OTHER)
    await clock.advance(1_000)
    expect(policy.current).toEqual({ on_http_response: [] })
    expect(changes()).toBe(1)
    writeFileSync(path, ` ${OTHER}`)
    await clock.advance(1_000)
    expect(changes()).toBe(1)
  })

  it('keeps the policy in force while the file is bad, and heals', async () => {
    const { path, clock, start } = setUp()
    writeFileSync(path, GOOD)
    const { policy, changes } = await start()
    writeFileSync(path, '{ "on_http')
    await clock.advance(1_000)
    expect(policy.current).toEqual({ on_http_request: [] })
    expect(policy.status.problem).toMatch(/not valid JSON: line 1, column 3/)
    writeFileSync(path, OTHER)
    await clock.advance(1_000)
    expect(policy.current).toEqual({ on_http_response: [] })
    expect(policy.status.problem).toBeUndefined()
    expect(changes()).toBe(1)
    expect((await start()).policy.current).toEqual({ on_http_response: [] })
  })

  it('ends with what the file says last, however long each check takes', async () => {
    const { path, clock, checked, start, onCheck } = setUp()
    writeFileSync(path, GOOD)
    const { policy } = await start()
    const slow = createDeferred()
    onCheck((document) => ('on_http_response' in document ? slow.promise : Promise.resolve()))
    writeFileSync(path, OTHER)
    await clock.advance(1_000)
    expect(checked).toHaveLength(2)
    writeFileSync(path, LAST)
    await clock.advance(1_000)
    slow.resolve()
    await clock.advance(0)
    await clock.advance(1_000)
    expect(policy.current).toEqual(JSON.parse(LAST))
  })

  it('starts with the last good copy while the device is too busy to check the file', async () => {
    const { path, captured, start, onCheck } = setUp()
    writeFileSync(path, GOOD)
    await start()
    writeFileSync(path, OTHER)
    onCheck(() => Promise.reject(new AppError('policy-not-checked', 'It took too long.')))
    const { policy } = await start()
    expect(policy.current).toEqual(JSON.parse(GOOD))
    expect(policy.status).toMatchObject({
      source: 'kept',
      problem: `The default policy ${path} is not in use: It took too long.`,
    })
    expect(captured.text()).toContain('using the last valid copy')
    onCheck(() => Promise.reject(new Error('a mistake')))
    await expect(start()).rejects.toThrow('a mistake')
  })

  it('checks a policy once and not again at each start', async () => {
    const { path, checked, start } = setUp()
    writeFileSync(path, GOOD)
    await start()
    await start()
    expect(checked).toHaveLength(1)
    writeFileSync(path, OTHER)
    await start()
    expect(checked).toHaveLength(2)
  })

  it('does not check what came with this package', async () => {
    const { path, checked, start } = setUp()
    const shipped = readFileSync(shippedPolicyPath(), 'utf8')
    writeFileSync(path, shipped)
    const { policy } = await start()
    expect(policy.current).toEqual(JSON.parse(shipped))
    expect(checked).toEqual([])
  })
})
