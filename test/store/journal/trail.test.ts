import { statSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { readJournal } from '../../../src/store/journal/journal-text.ts'
import { readState } from '../../../src/store/journal/trail.ts'
import { openFamily, TRAILS } from '../../helpers/journaled-family.ts'

const WRITE = "INSERT INTO diary (entry) VALUES ('today')"
const LARGE = `INSERT INTO diary (entry) VALUES ('${'x'.repeat(1_000)}')`

describe('the rows of a trail', () => {
  it('stand in the lines of a journal, with their sum', () => {
    const { path, connection, run } = openFamily()
    for (let day = 0; day < 5; day += 1) run(WRITE)
    const journal = readJournal(path)
    expect(journal?.trails.sum).toBe(readState(connection, TRAILS).sum)
    expect(journal?.trails.recent).toHaveLength(5)
    // The trail itself keeps three of them.
    expect(journal?.trails.recent.at(-1)?.trail.map(([verb]) => verb)).toEqual(['add', 'shed'])
    expect(journal?.rows?.has('diary')).toBe(false)
  })

  it('have another sum when one of them is another, or one more, or one less', () => {
    const { connection } = openFamily()
    connection.exec(`${WRITE};${WRITE}`)
    const sum = () => readState(connection, TRAILS).sum
    const before = sum()
    connection.exec("UPDATE diary SET entry = 'todaz' WHERE id = 2")
    const altered = sum()
    connection.exec("UPDATE diary SET entry = 'today' WHERE id = 2")
    expect(sum()).toBe(before)
    connection.exec(WRITE)
    const more = sum()
    connection.exec('DROP TRIGGER diary_stays; DELETE FROM diary WHERE id > 1')
    expect(new Set([before, altered, more, sum()]).size).toBe(4)
  })

  it('go along when a journal begins anew, until there is a backup of them', () => {
    const { path, journal, run } = openFamily()
    const until = (isThere: () => boolean) => {
      for (let day = 0; !isThere(); day += 1) {
        run(WRITE.replace('today', 'x'.repeat(1_000)))
        if (day > 500) expect.fail('it never begins anew')
      }
    }
    const begunWith = () => {
      const { rowsEnd, trails } = readJournal(path) ?? {}
      return { rowsEnd, first: trails?.recent[0]?.n }
    }
    const { rowsEnd } = begunWith()
    until(() => begunWith().rowsEnd !== rowsEnd)
    expect(begunWith().first).toBe(1)
    const n = readJournal(path)?.n ?? 0
    journal.backedUp(n)
    const grown = begunWith().rowsEnd
    until(() => begunWith().rowsEnd !== grown)
    expect(begunWith().first).toBe(n + 1)
  })

  it('do not make a journal grow without end where no backup is made', () => {
    const { path, run } = openFamily()
    for (let day = 0; day < 1_500; day += 1) run(LARGE)
    expect(readJournal(path)?.trails.recent.length).toBeLessThan(1_200)
    expect(statSync(path).size).toBeLessThan(1_500_000)
  })
})
