import fc from 'fast-check'
import { expect, it } from 'vitest'
import { LeastFirst } from '../../../src/gateway/streams/waiting-line.ts'

it('has the items in the order of their numbers, and of their coming among equals', () => {
  const changes = fc.array(fc.tuple(fc.nat(6), fc.option(fc.nat(9))))
  fc.assert(
    fc.property(changes, (steps) => {
      const items = new LeastFirst<number>()
      /** Newest last. */
      let model: { item: number; at: number }[] = []
      for (const [item, to] of steps) {
        const known = model.find((it) => it.item === item)
        if (to === null) {
          if (known) items.remove(item, known.at)
        } else if (known) {
          items.move(item, known.at, to)
        } else {
          items.add(item, to)
        }
        // A move to where it is counts as coming there.
        model = model.filter((it) => it.item !== item)
        if (to !== null) model.push({ item, at: to })
        const sorted = [...model].sort((a, b) => a.at - b.at).map((it) => it.item)
        expect([...items]).toEqual(sorted)
        expect(items.first).toBe(sorted[0])
      }
    }),
  )
})
