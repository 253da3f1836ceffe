import { fstatSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  asJournalError,
  journalDestination,
  leadsToJournal,
} from '../../../src/base/log/journal.ts'
import { createLogger } from '../../../src/base/logger.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

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
