import { describe, expect, it } from 'vitest'
import { createLogger, journalDestination, type LogLevel } from '../../src/base/logger.ts'
import { fromLevel } from '../../src/cli/process-log.ts'

function linesFrom(least: LogLevel, isJournal = false): string[] {
  const lines: string[] = []
  const filtered = fromLevel(least, { write: (line) => void lines.push(line) })
  const log = createLogger('debug', isJournal ? journalDestination(filtered) : filtered)
  for (const level of ['debug', 'info', 'warn', 'error'] as const) log[level](`a ${level} line`)
  return lines.map((line) => /"msg":"(.*?)"/.exec(line)?.[1] ?? line)
}

describe('fromLevel', () => {
  it.each([
    ['info', ['a info line', 'a warn line', 'a error line']],
    ['warn', ['a warn line', 'a error line']],
    ['silent', []],
  ] as const)('lets through what is as grave as %s', (least, lines) => {
    expect(linesFrom(least)).toEqual(lines)
    expect(linesFrom(least, true)).toEqual(lines)
  })

  it('is flushed with what it leads to', () => {
    let flushed = 0
    let done = 0
    fromLevel('warn', {
      write: () => {},
      flush: (end) => {
        flushed += 1
        end?.()
      },
    }).flush?.(() => {
      done += 1
    })
    fromLevel('warn', { write: () => {} }).flush?.(() => {
      done += 1
    })
    expect([flushed, done]).toEqual([1, 2])
  })
})
