import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { packageRoot } from '../../../src/base/file.ts'
import { FairScheduler, SchedulerMember } from '../../../src/policy/limit/fair-scheduler.ts'
import { BodyRewriter } from '../../../src/policy/rewriting/body-rewriter.ts'
import { eventually } from '../../helpers/eventually.ts'

const LONG = Buffer.from('one secret-17, two. '.repeat(3_000))
const HIDE = [{ from: 'secret-[0-9]+', to: '[hidden]' }]
/** 400 instructions: each character of a text is slow. */
const SLOW = [{ from: 'a.{400}b', to: '' }]
const lane = new FairScheduler()
const OWNER = new SchedulerMember(lane, 'long')

async function problemOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => undefined,
    (error: Error) => error.message,
  )
}

describe('a body rewriter', () => {
  it('replaces in small bodies without a thread, and in large ones with one', async () => {
    const rewriter = new BodyRewriter()
    const small = await rewriter.rewrite(OWNER, Buffer.from('a secret-1'), HIDE)
    expect(small.body.toString()).toBe('a [hidden]')
    expect(rewriter.isRunning).toBe(false)
    const { body, results } = await rewriter.rewrite(OWNER, LONG, HIDE)
    expect(rewriter.isRunning).toBe(true)
    expect(body.toString()).toBe(LONG.toString().replaceAll('secret-17', '[hidden]'))
    expect(results).toEqual([{ replacement_index: 0n, matched_content: 'secret-17' }])
  })

  it('lets everything else go on while a large body is searched', async () => {
    const rewriter = new BodyRewriter()
    const text = Buffer.from('xy'.repeat(250_000))
    let isDone = false
    const work = rewriter.rewrite(OWNER, text, [{ from: 'z+', to: '' }]).then(() => {
      isDone = true
    })
    let rounds = 0
    while (!isDone) {
      await new Promise(setImmediate)
      rounds += 1
    }
    await work
    // In one piece there would be the round in which it is handed over, and that of its answer.
    expect(rounds).toBeGreaterThan(10)
  })

  it('hands a small body on that takes long', async () => {
    const rewriter = new BodyRewriter()
    const text = Buffer.from('ab'.repeat(2_000))
    const { body } = await rewriter.rewrite(OWNER, text, [{ from: 'a.{30}b', to: '' }])
    expect(rewriter.isRunning).toBe(true)
    expect(body.length).toBeLessThan(text.length)
  })

  it('leaves a body as it is where nothing matches, and one that is no text', async () => {
    const rewriter = new BodyRewriter()
    const image = Buffer.alloc(8_192, 0xff)
    for (const body of [image, LONG]) {
      const replaced = await rewriter.rewrite(OWNER, body, [{ from: 'nowhere', to: 'x' }])
      expect(replaced.body.equals(body)).toBe(true)
      expect(replaced.results).toEqual([])
    }
  })

  it('sends no more than the body to the thread', async () => {
    const rewriter = new BodyRewriter()
    const around = Buffer.alloc(100_000, 'secret-1 ')
    const part = around.subarray(9, 9 + 9 * 1_000)
    const { body } = await rewriter.rewrite(OWNER, part, HIDE)
    expect(body.toString()).toBe('[hidden] '.repeat(1_000))
    expect(around.toString('latin1', 0, 9)).toBe('secret-1 ')
  })

  it('cuts a body between lines that is too long for its pattern', async () => {
    const rewriter = new BodyRewriter()
    const line = `${'ab'.repeat(50)} secret-1 ü\n`
    const text = Buffer.from(line.repeat(1_000))
    const pattern = [
      { from: 'b secret-[0-9]+ ü$', to: '' },
      { from: '(ab){50} secret-[0-9]{1,20} (ü)', to: '$2' },
    ]
    const { body, results } = await rewriter.rewrite(OWNER, text, pattern)
    expect(body.toString()).toBe('ü\n'.repeat(1_000))
    expect(results).toEqual([{ replacement_index: 1n, matched_content: line.slice(0, -1) }])
  })

  it('says why a body cannot be changed, and goes on with the next', async () => {
    const rewriter = new BodyRewriter()
    const costly = Buffer.alloc(1_000_000, 'ab')
    const [first, second, third] = await Promise.all([
      problemOf(rewriter.rewrite(OWNER, costly, SLOW)),
      problemOf(rewriter.rewrite(OWNER, LONG, [{ from: '(', to: '' }])),
      rewriter.rewrite(OWNER, LONG, HIDE),
    ])
    expect(first).toBe('the body is too long for the pattern')
    expect(second).toMatch(/^the pattern is not a valid RE2 expression/)
    expect(third.results).toHaveLength(1)
  })

  it('serves owners in turns, and refuses the crowd of one alone', async () => {
    const rewriter = new BodyRewriter()
    const order: string[] = []
    const ask = async (owner: SchedulerMember, name: string) => {
      await rewriter.rewrite(owner, LONG, HIDE)
      order.push(name)
    }
    const greedy = new SchedulerMember(lane, 'long')
    const all = Array.from({ length: 66 }, (_, n) => ask(greedy, `greedy ${n}`))
    const settled = Promise.allSettled(all)
    await ask(new SchedulerMember(lane, 'long'), 'modest')
    // The one under way, and the one whose turn comes before.
    expect(order.indexOf('modest')).toBeLessThanOrEqual(2)
    const refused = (await settled).filter(({ status }) => status === 'rejected')
    expect(refused.map((result) => String((result as PromiseRejectedResult).reason))).toEqual([
      expect.stringContaining('too many bodies are waiting'),
    ])
  })

  it('ends the thread when there was nothing to do, and starts another', async () => {
    const rewriter = new BodyRewriter({ idleMs: 20, answerMs: 60_000 })
    for (let round = 0; round < 2; round += 1) {
      await rewriter.rewrite(OWNER, LONG, HIDE)
      await eventually(() => expect(rewriter.isRunning).toBe(false))
    }
  })

  it('gives nobody the answer of a thread that was given up', async () => {
    const answerMs = 1_000
    const rewriter = new BodyRewriter({ answerMs })
    const other = Buffer.from(LONG.toString().replaceAll('17', '4'))
    const first = problemOf(rewriter.rewrite(OWNER, LONG, HIDE))
    // On a slow machine there may be no time left for it, either.
    const second = rewriter.rewrite(new SchedulerMember(lane), other, HIDE).catch(() => undefined)
    await new Promise(setImmediate)
    // The thread answers meanwhile; that it is late is noticed first.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, answerMs + 100)
    expect(await first).toBe('the body could not be rewritten')
    const own = { replacement_index: 0n, matched_content: 'secret-4' }
    expect((await second)?.results ?? [own]).toEqual([own])
  })

  it('gives up a body whose thread does not answer, or is not there', async () => {
    const silent = join(packageRoot(), 'test/policy/fixtures/silent-thread.js')
    const programs = [silent, join(packageRoot(), 'dist/nowhere.js')]
    for (const program of programs) {
      const rewriter = new BodyRewriter({ program, answerMs: 50 })
      const asked = [
        rewriter.rewrite(OWNER, LONG, HIDE),
        rewriter.rewrite(new SchedulerMember(lane), LONG, HIDE),
      ]
      expect(await Promise.all(asked.map(problemOf))).toEqual(
        asked.map(() => 'the body could not be rewritten'),
      )
    }
  })
})
