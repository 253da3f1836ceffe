import { fstatSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  asJournalError,
  createLogger,
  journalDestination,
  LogTail,
  leadsToJournal,
} from '../../src/base/logger.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const CANARY = 'canary-4f1c9a'

describe('logger', () => {
  it('censors secrets that come as plain strings under known names', () => {
    const { log, text } = captureLog()
    log.info({ authtoken: CANARY, req: { headers: { authorization: CANARY } } }, 'x')
    expect(text()).not.toContain(CANARY)
  })

  it('masks what looks like a secret in any text', () => {
    const { log, text } = captureLog()
    const url = `https://ann:${CANARY}@a.test/?key=${CANARY}`
    log.info({ err: new Error(`no answer from ${url}`), url }, `Bearer ${CANARY}`)
    expect(text()).not.toContain(CANARY)
  })

  it('shows stacks only to who asked for details', () => {
    const error = new Error('outer', { cause: new TypeError('inner') })
    const brief = captureLog('info')
    brief.log.error({ err: error }, 'failed')
    expect(brief.lines[0]?.err).toEqual({
      name: 'Error',
      message: 'outer',
      cause: { name: 'TypeError', message: 'inner' },
    })
    const detailed = captureLog('debug')
    detailed.log.error({ err: error }, 'failed')
    expect(detailed.text()).toContain('logger.test.ts')
  })
})

describe('journalDestination', () => {
  it('puts the priority of its level before each line', () => {
    const written: string[] = []
    const log = createLogger('trace', journalDestination({ write: (line) => written.push(line) }))
    for (const level of ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const) {
      log.child({ room: 'x' })[level](level)
    }
    expect(written.map((line) => line.slice(0, 4))).toEqual(
      [7, 7, 6, 4, 3, 2].map((priority) => `<${priority}>{`),
    )
  })
})

describe('asJournalError', () => {
  it('puts the priority before each line that says something', () => {
    expect(asJournalError('a mistake\n  and where\n')).toBe('<3>a mistake\n<3>  and where\n')
  })
})

describe('leadsToJournal', () => {
  it('compares device and inode with what the service manager said', () => {
    const file = openSync(join(temporaryFolder(), 'journal'), 'w')
    const { dev, ino } = fstatSync(file)
    expect(leadsToJournal(`${dev}:${ino}`, file)).toBe(true)
    expect(leadsToJournal(`${dev}:${ino + 1}`, file)).toBe(false)
    expect(leadsToJournal(undefined, file)).toBe(false)
  })
})

function start() {
  const written: string[] = []
  const tail = new LogTail()
  const destination = tail.through({ write: (text) => void written.push(text) })
  return { tail, destination, written, log: createLogger('info', destination) }
}

describe('LogTail', () => {
  it('passes on what it keeps, and numbers it', () => {
    const { tail, log, written } = start()
    log.info({ url: 'a' }, 'first')
    log.warn('second')
    expect(written).toHaveLength(2)
    expect(tail.after(0)).toMatchObject([
      { number: 1, line: { level: 'info', msg: 'first', url: 'a' } },
      { number: 2, line: { level: 'warn', msg: 'second' } },
    ])
    expect(tail.after(1)).toMatchObject([{ number: 2 }])
    expect(tail.after(0, 1)).toMatchObject([{ number: 2 }])
    expect([tail.after(2), tail.after(99), tail.last]).toEqual([[], [], 2])
  })

  it('reads lines of the journal, which have a priority before them', () => {
    const { tail, destination, written } = start()
    createLogger('info', journalDestination(destination)).error('broken')
    expect(written[0]).toMatch(/^<3>\{/)
    expect(tail.after(0)).toMatchObject([{ line: { level: 'error', msg: 'broken' } }])
  })

  it('keeps a bounded number of lines and bytes', () => {
    const { tail, log } = start()
    for (let n = 1; n <= 3_000; n += 1) log.info({ n }, 'line')
    const lines = tail.after(0, 10_000)
    expect(lines.length).toBeLessThanOrEqual(1_000)
    expect(lines.length).toBeGreaterThan(700)
    expect(lines.map(({ number, line }) => number - Number(line.n))).toEqual(lines.map(() => 0))
    expect(lines.at(-1)?.number).toBe(3_000)
    for (let n = 0; n < 500; n += 1) log.info({ text: 'x'.repeat(7_000) }, 'long')
    expect(JSON.stringify(tail.after(0, 10_000)).length).toBeLessThan(600_000)
  })

  it('keeps a very long line without its details', () => {
    const { tail, log, written } = start()
    log.info({ text: 'x'.repeat(20_000) }, 'long')
    expect(written[0]?.length).toBeGreaterThan(20_000)
    expect(tail.after(0)).toMatchObject([
      { line: { msg: 'long', level: 'info', left_out_bytes: expect.any(Number) } },
    ])
    expect(tail.after(0)[0]?.line).not.toHaveProperty('text')
  })

  it('asks what is behind it to write what waits', () => {
    const tail = new LogTail()
    let isFlushed = false
    const destination = tail.through({
      write: () => {},
      flush: (done) => {
        isFlushed = true
        done?.()
      },
    })
    destination.flush?.()
    expect(isFlushed).toBe(true)
  })
})
