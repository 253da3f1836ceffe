import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AppError } from '../../../src/base/app-error.ts'
import { policyReading } from '../../../src/policy/document/policy-text.ts'
import { YamlReader } from '../../../src/policy/document/yaml-reader.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const yaml = (rules: number, path = '/') =>
  `on_http_request:\n${`  - expressions: ["req.url.path == '${path}'"]\n    actions: [{ type: deny }]\n`.repeat(rules)}`

async function refusal(work: Promise<unknown>): Promise<AppError> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (error instanceof AppError) return error
  throw new Error('not refused', { cause: error })
}

function programOf(lines: string): string {
  const file = join(temporaryFolder(), 'thread.mjs')
  writeFileSync(file, `import { parentPort } from 'node:worker_threads'\n${lines}\n`)
  return file
}

describe('a reader of YAML policies', () => {
  it('reads JSON without a thread, and YAML with one', async () => {
    const reader = new YamlReader()
    const json = await reader.read('{"on_http_request":[]}', 'a')
    expect(json).toEqual({ read: { value: { on_http_request: [] } }, problems: [] })
    expect(reader.isRunning).toBe(false)
    expect(await reader.read(yaml(1), 'a')).toMatchObject({
      read: { value: { on_http_request: [{ actions: [{ type: 'deny' }] }] } },
    })
    expect(reader.isRunning).toBe(true)
  })

  it.each([
    ['a syntax error', 'on_http_request: ]'],
    ['a key that is defined twice', '{"a":1,\n"a":2}'],
    ['a tag', "on_http_request:\n  - expressions:\n    - !hasReqHeader('a')\n"],
    ['too many levels', '{a: '.repeat(10_000)],
    ['two documents', 'a: 1\n---\nb: 2\n'],
    ['the key of all prototypes', '__proto__:\n  a: 1\n'],
  ])('finds in the thread what it finds here: %s', async (_what, text) => {
    expect(await new YamlReader().read(text, null)).toEqual(policyReading(text))
  })

  it('lets everything else go on meanwhile', async () => {
    let isDone = false
    const work = new YamlReader().read(yaml(199), 'a').finally(() => {
      isDone = true
    })
    // Handled below. Until then, it must not end the loop as an unhandled rejection.
    work.catch(() => {})
    let rounds = 0
    while (!isDone) {
      await new Promise((resolve) => setTimeout(resolve, 1))
      rounds += 1
    }
    await work
    expect(rounds).toBeGreaterThan(10)
  })

  it('serves accounts in turns, and reads equal texts once', async () => {
    const reader = new YamlReader()
    const order: string[] = []
    const ask = async (owner: string, path: string) => {
      await reader.read(yaml(1, path), owner)
      order.push(owner)
    }
    const greedy = Array.from({ length: 66 }, (_, at) => ask('greedy', `/${at}`))
    const settled = Promise.allSettled(greedy)
    const same = Promise.all(Array.from({ length: 100 }, () => reader.read(yaml(2), 'equal')))
    await ask('modest', '/')
    expect(order.indexOf('modest')).toBeLessThanOrEqual(2)
    expect(await same).toHaveLength(100)
    const refused = (await settled).filter(({ status }) => status === 'rejected')
    expect(refused.map((it) => (it as PromiseRejectedResult).reason)).toEqual([
      expect.objectContaining({
        code: 'policy-not-checked',
        message: expect.stringContaining('Too many YAML policies of this account'),
      }),
    ])
  })

  it('ends the thread when it is idle, and starts another', async () => {
    const reader = new YamlReader({ idleMs: 20 })
    for (let round = 0; round < 2; round += 1) {
      await reader.read(yaml(1), 'a')
      await eventually(() => expect(reader.isRunning).toBe(false))
    }
  })

  it.each([
    ['does not start', ''],
    ['crashes', `parentPort.on('message', () => { throw new Error('broken') })`],
    ['does not answer', `parentPort.on('message', () => {})`],
  ])('refuses a text for now if the thread %s', async (_what, lines) => {
    const program = lines === '' ? '/no/such/thread.mjs' : programOf(lines)
    const reader = new YamlReader({ program, answerMs: 500 })
    const error = await refusal(reader.read(yaml(1), 'a'))
    expect(error).toMatchObject({ status: 503, retryAfterS: 5 })
    expect(error.message).toContain('did not start or did not finish')
  })

  it('reads with another thread after a crash', async () => {
    const program = programOf(`parentPort.on('message', (text) => {
      if (text.includes('crash')) process.exit(1)
      parentPort.postMessage({ read: { value: text }, problems: [] })
    })`)
    const reader = new YamlReader({ program })
    const [first, second] = await Promise.allSettled([
      reader.read('crash: true', 'a'),
      reader.read('a: 1', 'b'),
    ])
    expect(first.status).toBe('rejected')
    expect(second).toMatchObject({ value: { read: { value: 'a: 1' } } })
  })
})
