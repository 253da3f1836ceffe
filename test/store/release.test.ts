import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Two of one folder, as two processes have it one after the other. */
function handedOver() {
  const folder = temporaryFolder()
  const first = openNotes(folder)
  first.add('of the first')
  first.database.release()
  return { folder, first, second: openNotes(folder) }
}

const contentOf = (folder: string) =>
  readdirSync(folder)
    .filter((name) => !/-(wal|shm)$/.test(name))
    .sort()
    .map((name) => [name, readFileSync(join(folder, name)).toString('base64')])

describe('a database that is left to another process', () => {
  it('is read by both, and changed by the other alone', () => {
    const { folder, first, second } = handedOver()
    second.add('of the second')
    expect(first.texts()).toEqual(['of the first', 'of the second'])
    const refusal = expect.objectContaining({ code: 'storage-unavailable', retryAfterS: 1 })
    expect(() => first.add('lost')).toThrow(refusal)
    expect(() => first.database.confirmLosses()).toThrow(refusal)
    first.database.ping()
    second.add('once more')
    second.database.close()
    expect(openNotes(folder).texts()).toEqual(['of the first', 'of the second', 'once more'])
  })

  it('is not touched by the close of the first', () => {
    const { folder, first, second } = handedOver()
    second.add('of the second')
    const before = contentOf(folder)
    first.database.close()
    expect(contentOf(folder)).toEqual(before)
    second.add('once more')
    second.database.close()
    const again = openNotes(folder)
    expect(again.texts()).toEqual(['of the first', 'of the second', 'once more'])
    expect(again.database.report()).toMatchObject({ healing: undefined, losses: [] })
  })

  it('is no damage to the first when the other one puts another file there', () => {
    const folder = temporaryFolder()
    const restarts: string[] = []
    const onRestartNeeded = (reason: string) => restarts.push(reason)
    const first = openNotes(folder, { onRestartNeeded })
    first.add('of the first')
    first.database.release()
    // As a heal does: the old file is put aside.
    for (const name of readdirSync(folder)) rmSync(join(folder, name))
    first.database.ping()
    first.texts()
    expect([restarts, first.database.report().fault]).toEqual([[], undefined])
  })

  it('is taken back as it was left', () => {
    const { folder, first, second } = handedOver()
    expect(second.texts()).toEqual(['of the first'])
    second.database.close()
    first.database.reclaim()
    first.add('after all')
    first.database.close()
    const again = openNotes(folder)
    expect(again.texts()).toEqual(['of the first', 'after all'])
    expect(again.database.report()).toMatchObject({ healing: undefined, losses: [] })
  })

  it('stays with the other one once that has changed it', () => {
    const { first, second } = handedOver()
    second.add('of the second')
    second.database.close()
    expect(() => first.database.reclaim()).toThrow('another process changed the database')
    // Nor when it is left to a second one, which changes nothing.
    first.database.release()
    expect(() => first.database.reclaim()).toThrow('another process changed the database')
    expect(() => first.add('lost')).toThrow('Another process')
  })
})
