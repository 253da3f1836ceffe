import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { PolicyChecker } from '../../src/agent/policy-check.ts'
import { PolicyProcess, type PolicyProcessOptions } from '../../src/agent/policy-process.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const GOOD = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
const BAD = {
  on_http_request: [{ expressions: ['req.nothing'], actions: [{ type: 'oh' }] }],
}
const POINTERS = ['/on_http_request/0/expressions/0', '/on_http_request/0/actions/0/type']
const EMBEDDED = { service: 'embedded' } as const

function start(options?: PolicyProcessOptions) {
  const process = new PolicyProcess(options)
  onTestFinished(() => process.stop())
  return process
}

/** A program in place of the one that checks policies. */
function program(source: string): string {
  const path = join(temporaryFolder(), 'program.mjs')
  writeFileSync(path, source)
  return path
}

const pointersOf = (problems: readonly { pointer: string }[]) =>
  problems.map(({ pointer }) => pointer)

describe('PolicyProcess', () => {
  it('answers each question with its own problems, from one process', async () => {
    const process = start()
    expect(process.pid).toBeUndefined()
    const [good, bad] = await Promise.all([
      process.check(JSON.stringify(GOOD), EMBEDDED),
      process.check(JSON.stringify(BAD), EMBEDDED),
    ])
    expect([pointersOf(good), pointersOf(bad)]).toEqual([[], POINTERS])
    const { pid } = process
    expect(pid).toBeGreaterThan(0)
    await process.check(JSON.stringify(GOOD), EMBEDDED)
    expect(process.pid).toBe(pid)
  })

  it('ends when there was nothing to check for a while, and starts again', async () => {
    const process = start({ idleMs: 20 })
    await process.check(JSON.stringify(GOOD), EMBEDDED)
    const { pid } = process
    await eventually(() => expect(existsSync(`/proc/${pid}`)).toBe(false))
    expect(process.pid).toBeUndefined()
    expect(pointersOf(await process.check(JSON.stringify(BAD), EMBEDDED))).toEqual(POINTERS)
  })

  it('is told nothing but what it has to check', async () => {
    const echo = program(`process.on('message', (question) => {
      process.send({ id: question.id, problems: [JSON.stringify([question, process.env])] })
    })`)
    const [told] = await start({ program: echo }).check('{}', EMBEDDED)
    expect(JSON.parse(String(told))).toEqual([{ id: 1, text: '{}', service: 'embedded' }, {}])
  })

  it.each([
    ['ends', 'process.exit(1)', undefined, 'ended'],
    ['ends with a question', "process.on('message', () => process.exit())", undefined, 'ended'],
    ['says nothing', "process.on('message', () => {})", 50, 'took longer than 50 ms'],
  ])('knows nothing when it %s', async (_what, source, answerMs, message) => {
    const process = start({ program: program(source), ...(answerMs && { answerMs }) })
    const both = [process.check('{}', EMBEDDED), process.check('{}', EMBEDDED)]
    const outcomes = await Promise.allSettled(both)
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    await expect(both[0]).rejects.toThrow(message)
    expect(process.pid).toBeUndefined()
  })
})

describe('PolicyChecker', () => {
  it.each([
    ['in a process of its own', {}, 0],
    ['without one where none can be had', { program: '/nowhere/at-all.js' }, 1],
  ])('finds every error %s', async (_where, options, warnings) => {
    const { log, lines } = captureLog()
    const process = start(options)
    const { check } = new PolicyChecker({ service: 'embedded', log, process })
    expect(await check(GOOD)).toEqual([])
    lines.length = 0
    expect(await check(BAD)).toMatchObject([
      { pointer: POINTERS[0], detail: expect.any(String), code: 'ERR_NGROK_2200' },
      { pointer: POINTERS[1], detail: expect.any(String), code: 'ERR_NGROK_2201' },
    ])
    expect(lines).toHaveLength(warnings)
  })

  it('leaves to the hosted service what only that can know, and says so', async () => {
    const { log, text } = captureLog()
    const { check } = new PolicyChecker({ service: 'hosted', log, process: start() })
    expect(await check({ on_http_request: [{ actions: [{ type: 'newer-action' }] }] })).toEqual([])
    expect(text()).toContain('the service will have to judge this policy')
  })
})
