import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { BucketTable } from '../../../src/policy/limit/bucket-table.ts'

/** Few low halves, so that rows meet in the index. */
const hashes = fc.tuple(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 1, max: 8 }))
const steps = fc.array(fc.tuple(fc.constantFrom('insert', 'remove'), hashes), {
  maxLength: 400,
})

describe('BucketTable', () => {
  it('finds what a map would, with its words, whatever was inserted and removed', () => {
    fc.assert(
      fc.property(steps, (list) => {
        const table = new BucketTable(4)
        const model = new Map<string, number>()
        for (const [step, [low, high]] of list) {
          const key = `${low} ${high}`
          const row = table.find(low, high)
          expect(row !== -1).toBe(model.has(key))
          if (step === 'insert' && row === -1) {
            const value = model.size + 1
            const inserted = table.insert(low, high)
            table.page(inserted).words[table.offset(inserted)] = value
            model.set(key, value)
          } else if (step === 'remove' && row !== -1) {
            table.remove(row)
            model.delete(key)
          }
        }
        expect(table.size).toBe(model.size)
        for (const [key, value] of model) {
          const [low = 0, high = 0] = key.split(' ').map(Number)
          const row = table.find(low, high)
          expect(table.page(row).words[table.offset(row)]).toBe(value)
        }
      }),
      { numRuns: 200 },
    )
  })

  it('has zeros in new rows, also where another one stood', () => {
    const table = new BucketTable(4)
    const row = table.insert(1, 1)
    table.page(row).words.fill(9, table.offset(row), table.offset(row) + 4)
    table.remove(row)
    const next = table.insert(2, 2)
    const { words } = table.page(next)
    expect([...words.subarray(table.offset(next), table.offset(next) + 4)]).toEqual([0, 0, 0, 0])
  })

  it('grows over many pages and gives them back', () => {
    const table = new BucketTable(14)
    for (let key = 0; key < 20_000; key += 1) table.insert(Math.imul(key, 0x9e3779b1), key)
    const full = table.bytes
    for (let key = 0; key < 20_000; key += 1) {
      expect(table.find(Math.imul(key, 0x9e3779b1), key)).not.toBe(-1)
    }
    while (table.size > 10) table.remove(table.size - 1)
    expect(table.bytes).toBeLessThan(full / 2)
    expect(table.find(0, 0)).toBe(0)
  })
})
