import { describe, expect, it } from 'vitest'
import { journalDestination } from '../../../src/base/log/journal.ts'
import { LogTail } from '../../../src/base/log/log-tail.ts'
import { createLogger } from '../../../src/base/logger.ts'

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
