import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { PolicyChecker } from '../../../src/agent/policies/policy-check.ts'
import {
  PolicyProcess,
  type PolicyProcessOptions,
  UncheckableError,
} from '../../../src/agent/policies/policy-process.ts'
import { packageRoot } from '../../../src/base/file.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const GOOD = { on_http_request: [{ actions: [{ type: 'deny' }] }] }
const BAD = {
  on_http_request: [{ expressions: ['req.nothing'], actions: [{ type: 'oh' }] }],
}
const POINTERS = ['/on_http_request/0/expressions/0', '/on_http_request/0/actions/0/type']
const EMBEDDED = { service: 'embedded' } as const
const POLICY_PROGRAM = join(packageRoot(), 'dist/policy-process.js')
/** The beginning of a program that is ready and then does something with each question. */
const ON_QUESTION = "process.send('ready'); process.on('message', (question) =>"

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

  it('reads YAML as JSON, and says where it cannot', async () => {
    const process = start()
    expect(await process.read('on_http_request:\n  - actions: [{type: deny}]\n')).toEqual({
      json: JSON.stringify(GOOD),
    })
    expect(await process.read('a: 1\na: 2')).toEqual({
      problem: 'a is defined twice (line 2, column 1).',
    })
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
    const echo = program(`${ON_QUESTION} process.send([[question, process.env]]))`)
    const told: unknown = await start({ program: echo }).check('{}', EMBEDDED)
    expect(told).toEqual([[{ text: '{}', service: 'embedded' }, {}]])
  })

  it('is given one document at a time, so that none pays for the others', async () => {
    const single = program(`let isBusy = false; ${ON_QUESTION} {
      if (isBusy) process.exit()
      isBusy = true
      setTimeout(() => { isBusy = false; process.send([question.text]) }, 20)
    })`)
    const process = start({ program: single })
    const texts = Array.from({ length: 10 }, (_, n) => String(n))
    const answers: unknown = await Promise.all(texts.map((text) => process.check(text, EMBEDDED)))
    expect(answers).toEqual(texts.map((text) => [text]))
  })

  it.each([
    ['ends with a document', `${ON_QUESTION} process.exit())`],
    ['says nothing to it', `${ON_QUESTION} {})`],
  ])('calls a document uncheckable when it %s', async (_what, source) => {
    const process = start({ program: program(source), answerMs: 50 })
    await expect(process.check('{}', EMBEDDED)).rejects.toThrow(UncheckableError)
    expect(process.pid).toBeUndefined()
  })

  it.each([
    ['ends at once', 'process.exit(1)', undefined, 'ended'],
    ['never gets ready', 'setInterval(() => {}, 1_000)', 50, 'took longer than 50 ms'],
  ])('knows nothing when it %s', async (_what, source, startMs, message) => {
    const process = start({ program: program(source), ...(startMs && { startMs }) })
    const both = [process.check('{}', EMBEDDED), process.check('{}', EMBEDDED)]
    const outcomes = await Promise.allSettled(both)
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    await expect(both[1]).rejects.toThrow(message)
    await expect(both[1]).rejects.not.toThrow(UncheckableError)
    expect(process.pid).toBeUndefined()
  })

  it('leaves no process behind a stop, whoever waits', async () => {
    const process = start({ program: program(`${ON_QUESTION} {})`) })
    const waiting = [process.check('{}', EMBEDDED), process.check('{}', EMBEDDED)]
    await eventually(() => expect(process.pid).toBeGreaterThan(0))
    const { pid } = process
    process.stop()
    for (const one of [...waiting, process.check('{}', EMBEDDED)]) {
      await expect(one).rejects.toMatchObject({ code: 'shutting-down' })
    }
    expect(process.pid).toBeUndefined()
    await eventually(() => expect(existsSync(`/proc/${pid}`)).toBe(false))
  })

  it('ends when its agent is killed', async () => {
    const agent = program(`
      import { fork } from 'node:child_process'
      const child = fork(${JSON.stringify(POLICY_PROGRAM)})
      child.once('message', () => process.stdout.write(String(child.pid)))
    `)
    const killed = spawn(process.execPath, [agent], { stdio: ['ignore', 'pipe', 'inherit'] })
    const [pid] = await once(killed.stdout, 'data')
    expect(existsSync(`/proc/${pid}`)).toBe(true)
    killed.kill('SIGKILL')
    await eventually(() => expect(existsSync(`/proc/${pid}`)).toBe(false))
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

  it('refuses what is too much for that process, and does not try it in this one', async () => {
    const { log, lines } = captureLog()
    const process = start({ program: program(`${ON_QUESTION} process.exit())`) })
    const { check } = new PolicyChecker({ service: 'embedded', log, process })
    expect(await check(GOOD)).toEqual([
      { pointer: '', detail: expect.stringMatching(/smaller\.$/) },
    ])
    expect(lines).toEqual([])
  })

  it('says of one that took too long that the device is busy, and nothing of the policy', async () => {
    const { log, lines } = captureLog()
    const process = start({ program: program(`${ON_QUESTION} {})`), answerMs: 50 })
    const { check } = new PolicyChecker({ service: 'embedded', log, process })
    await expect(check(GOOD)).rejects.toMatchObject({
      code: 'policy-not-checked',
      status: 503,
      retryAfterS: 5,
      message: expect.stringMatching(/took longer than 0\.05 s because the device is busy\./),
    })
    expect(lines).toEqual([])
  })

  it('leaves to the hosted service what only that can know, and says so', async () => {
    const { log, text } = captureLog()
    const { check } = new PolicyChecker({ service: 'hosted', log, process: start() })
    expect(await check({ on_http_request: [{ actions: [{ type: 'newer-action' }] }] })).toEqual([])
    expect(text()).toContain('policy not checked here, the service will check it')
  })
})
