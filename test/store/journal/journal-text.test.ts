import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parseJournal } from '../../../src/store/journal/journal-text.ts'
import { openFamily } from '../../helpers/journaled-family.ts'
import { openNotes } from '../../helpers/open-store.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

describe('parseJournal', () => {
  function bytesOf(lines: number) {
    const { path, run } = openFamily()
    for (let n = 0; n < lines; n += 1) run(`INSERT INTO parents VALUES ('${n}', 'name ${n}')`)
    return readFileSync(path)
  }

  it('tells any single flipped bit, wherever it is', () => {
    const bytes = bytesOf(3)
    const { end } = parseJournal(bytes)
    for (let at = 0; at < end + 200; at += 1) {
      const harmed = Buffer.from(bytes)
      harmed[at] = (harmed[at] ?? 0) ^ (1 << (at % 8))
      expect(parseJournal(harmed).tail, `byte ${at}`).not.toBe('clean')
    }
  })

  it('tells any cut, also between two lines', () => {
    const bytes = bytesOf(3)
    for (let size = 0; size < bytes.length; size += 97) {
      expect(parseJournal(bytes.subarray(0, size)).tail).toBe('damaged')
    }
    const { end } = parseJournal(bytes)
    expect(parseJournal(bytes.subarray(0, end)).tail).toBe('damaged')
  })

  it('takes at most one line for torn', () => {
    const bytes = bytesOf(4)
    const lastLine = bytes.lastIndexOf('name 3')
    const lineBefore = bytes.lastIndexOf('name 2')
    bytes.write('NAME', lastLine)
    expect(parseJournal(bytes)).toMatchObject({ tail: 'torn', n: 3 })
    bytes.write('NAME', lineBefore)
    expect(parseJournal(bytes)).toMatchObject({ tail: 'damaged', n: 2 })
  })

  it('reads what stands behind a gap', () => {
    const bytes = bytesOf(4)
    bytes.write('NAME', bytes.indexOf('name 1'))
    const { n, rest } = parseJournal(bytes)
    expect([n, rest.map((change) => change.n)]).toEqual([1, [3, 4]])
  })

  it('says nothing of rows when not all of them can be read', () => {
    const folder = temporaryFolder()
    const { path, add, database } = openNotes(folder)
    for (let n = 0; n < 200; n += 1) add(`${n} ${'x'.repeat(600)}`)
    database.close()
    const bytes = readFileSync(`${path}.journal`)
    bytes[200] = 0
    expect(parseJournal(bytes).rows).toBeUndefined()
  })
})
