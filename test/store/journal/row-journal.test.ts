import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { Committer } from '../../../src/store/journal/committer.ts'
import { readJournal } from '../../../src/store/journal/journal-text.ts'
import type { RowJournal } from '../../../src/store/journal/row-journal.ts'
import { readRows, sameRows } from '../../../src/store/journal/rows.ts'
import { readState } from '../../../src/store/journal/trail.ts'
import type { Connection } from '../../../src/store/sqlite.ts'
import { openFamily, TRAILS } from '../../helpers/journaled-family.ts'
import { openNotes } from '../../helpers/open-store.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** Whether the journal has just the rows that the database has. */
function isIn(path: string, connection: Connection): boolean {
  const journal = readJournal(path)
  const { rows, sum } = readState(connection, TRAILS)
  return journal?.trails.sum === sum && sameRows(journal.rows ?? new Map(), rows)
}
const modeOf = (path: string) => statSync(path).mode & 0o777

describe('a journal', () => {
  it.each<[string, readonly string[]]>([
    ['inserts, with all kinds of values', ["INSERT INTO children VALUES (7, 'a', x'00ff', 1.5)"]],
    ['updates of a cell', ["UPDATE parents SET name = 'ö' WHERE id = 'a'"]],
    ['updates of a key', ["UPDATE parents SET id = 'z' WHERE id = 'b'"]],
    ['deletes', ["DELETE FROM parents WHERE id = 'b'"]],
    [
      'what a delete takes along',
      ["INSERT INTO children VALUES (7, 'a', NULL, 0)", 'DELETE FROM parents'],
    ],
    ['rows that others push out', ["INSERT OR REPLACE INTO parents VALUES ('c', 'Bob')"]],
    [
      'several changes of a row in one transaction',
      [
        `INSERT INTO parents VALUES ('d', 'D'); UPDATE parents SET name = 'E' WHERE id = 'd';
        DELETE FROM parents WHERE id = 'a'`,
      ],
    ],
  ])('has %s', (_what, statements) => {
    const { path, connection, run } = openFamily()
    run("INSERT INTO parents VALUES ('a', 'Ann'), ('b', 'Bob')")
    for (const sql of statements) run(sql)
    expect(readJournal(path)).toMatchObject({ tail: 'clean', n: 1 + statements.length })
    expect(isIn(path, connection)).toBe(true)
  })

  it('has nothing of a statement that failed inside of a transaction that went on', () => {
    const { path, connection, committer } = openFamily()
    committer.commit(() => {
      connection.exec("INSERT INTO parents VALUES ('a', 'Ann')")
      const twice = "INSERT INTO parents VALUES ('b', 'Bob'), ('c', 'Ann')"
      expect(() => connection.exec(twice)).toThrow('UNIQUE')
    })
    expect(isIn(path, connection)).toBe(true)
    expect(readFileSync(path, 'utf8')).not.toContain('Bob')
  })

  it('has no line for a transaction that changed nothing', () => {
    const { path, run } = openFamily()
    run("UPDATE parents SET name = 'nobody'")
    expect(readJournal(path)?.n).toBe(0)
  })

  it('begins anew with all rows when its room is used up', () => {
    const { path, connection, run } = openFamily()
    const before = readJournal(path)?.rowsEnd ?? 0
    for (let count = 0; count < 300; count += 1) {
      run(`INSERT INTO parents VALUES ('${count}', '${'x'.repeat(500)}${count}')`)
    }
    expect(readJournal(path)?.rowsEnd).toBeGreaterThan(before)
    expect(modeOf(path)).toBe(0o600)
    expect(readJournal(path)).toMatchObject({ n: 300, tail: 'clean' })
    expect(isIn(path, connection)).toBe(true)
  })

  it('does not grow without end: deletes are lines, too, and go with the next beginning', () => {
    const { path, run } = openFamily()
    for (let count = 0; count < 1_500; count += 1) {
      run(`INSERT INTO parents VALUES ('a', '${'x'.repeat(100)}')`)
      run('DELETE FROM parents')
    }
    expect(statSync(path).size).toBeLessThan(100_000)
  })

  it.each<[string, (path: string) => void]>([
    ['deleted', (path) => rmSync(path)],
    [
      'replaced',
      (path) => {
        writeFileSync(`${path}.new`, 'noise')
        renameSync(`${path}.new`, path)
      },
    ],
  ])('begins anew when it is taken away under its owner: %s', (_how, take) => {
    const { path, connection, run } = openFamily()
    run("INSERT INTO parents VALUES ('a', 'Ann')")
    take(path)
    run("INSERT INTO parents VALUES ('b', 'Bob')")
    expect(isIn(path, connection)).toBe(true)
  })

  it('goes on behind its last line after a start', () => {
    const folder = temporaryFolder()
    const { path, add, database } = openNotes(folder)
    add('one')
    database.close()
    const before = statSync(`${path}.journal`).ino
    const again = openNotes(folder)
    again.add('two')
    expect(statSync(`${path}.journal`).ino).toBe(before)
    expect(readJournal(`${path}.journal`)?.rows?.get('notes')?.size).toBe(2)
  })
})

describe('a line that cannot be written', () => {
  it('takes the change back, and the next one begins anew', () => {
    const { path, connection, journal, recorder, log, run } = openFamily()
    run("INSERT INTO parents VALUES ('a', 'Ann'), ('b', 'Bob')")
    run("INSERT INTO children VALUES (1, 'a', NULL, 1)")
    for (const entry of ['one', 'two', 'three'])
      run(`INSERT INTO diary (entry) VALUES ('${entry}')`)
    const before = readRows(connection)
    // The one thing that no real disk does when asked: to fail once, after the commit.
    const failing = {
      prepare: (...args: Parameters<RowJournal['prepare']>) => ({
        ...journal.prepare(...args),
        finish: () => {
          journal.close()
          throw Object.assign(new Error('bad block'), { code: 'EIO' })
        },
      }),
    } as unknown as RowJournal
    const onTorn = () => expect.fail('it was taken back')
    const committer = new Committer({ connection, journal: failing, recorder, onTorn, log })
    const change = () =>
      connection.exec(
        "DELETE FROM parents WHERE id = 'b'; UPDATE parents SET name = 'Zoe'; INSERT INTO parents VALUES ('c', 'C');" +
          // Takes the oldest entry along, and may itself not be deleted.
          "INSERT INTO diary (entry) VALUES ('four')",
      )
    expect(() => committer.commit(change)).toThrow('bad block')
    expect(readRows(connection)).toEqual(before)
    run("INSERT INTO parents VALUES ('d', 'Dan')")
    expect(readJournal(path)).toMatchObject({ tail: 'clean' })
    expect(isIn(path, connection)).toBe(true)
  })
})
