import { statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { describeLosses, LossRecord } from '../../src/store/loss-record.ts'
import type { Healing } from '../../src/store/recovery.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const healing = (change: Partial<Healing> = {}): Healing => ({
  damage: 'corrupt',
  copy: 'backup',
  restoredFrom: Date.UTC(2030, 0, 2),
  missing: 1,
  mayBeMore: false,
  ...change,
})

describe('LossRecord', () => {
  it('keeps what may be missing until it is confirmed, in a private file', () => {
    const path = join(temporaryFolder(), 'a.db')
    const record = new LossRecord(path)
    record.add(healing(), 5)
    expect(new LossRecord(path).list()).toEqual([{ ...healing(), foundAt: 5 }])
    expect(statSync(`${path}.losses`).mode & 0o777).toBe(0o600)
    expect(record.confirm()).toHaveLength(1)
    expect(new LossRecord(path).list()).toEqual([])
    expect(record.confirm()).toEqual([])
  })

  it('keeps nothing where nothing is missing', () => {
    const record = new LossRecord(join(temporaryFolder(), 'a.db'))
    record.add(healing({ missing: 0 }), 5)
    expect(record.list()).toEqual([])
    record.add(healing({ missing: 0, mayBeMore: true }), 5)
    expect(record.list()).toHaveLength(1)
  })

  it('takes what is found again after a power cut for the same', () => {
    const record = new LossRecord(join(temporaryFolder(), 'a.db'))
    record.add(healing(), 5)
    record.add(healing(), 6)
    expect(record.list()).toEqual([{ ...healing(), foundAt: 6 }])
  })

  it('is bounded: keeps the first and the newest', () => {
    const record = new LossRecord(join(temporaryFolder(), 'a.db'))
    for (let n = 1; n <= 30; n += 1) record.add(healing({ missing: n }), n)
    expect(record.list().map(({ foundAt }) => foundAt)).toEqual([
      1, 22, 23, 24, 25, 26, 27, 28, 29, 30,
    ])
  })
})

describe('describeLosses', () => {
  it.each<[readonly Healing[], string]>([
    [
      [healing()],
      'the database was damaged: 1 change may be missing (restored from a backup of 2030-01-02T00:00:00.000Z)',
    ],
    [
      [healing(), healing({ missing: 2, mayBeMore: true, copy: 'none', restoredFrom: undefined })],
      'the database was damaged, and no backup was found: all its data is lost',
    ],
    [
      [healing({ missing: 0, mayBeMore: true, copy: 'database' })],
      'the database was damaged: the latest changes may be missing (last written 2030-01-02T00:00:00.000Z)',
    ],
  ])('says how much, and from when the copy is', (losses, sentence) => {
    expect(describeLosses(losses.map((loss) => ({ ...loss, foundAt: 1 })))).toBe(sentence)
  })

  it('says nothing of nothing', () => {
    expect(describeLosses([])).toBeUndefined()
  })
})
