import { describe, expect, it, onTestFinished } from 'vitest'
import { Specimen, TARGETS } from './corruption.ts'
import { OWNERS } from './owners.ts'

const RUNS = 12
const SEED = 20_260_711

describe.each(Object.entries(OWNERS))('a database of the %s, damaged at random', (_name, owner) => {
  it.each(Object.entries(TARGETS))(
    'starts each time, and loses nothing unsaid: %s',
    (_target, ends) => {
      const specimen = Specimen.make(owner)
      onTestFinished(() => specimen.remove())
      const { findings, outcomes } = specimen.examine(ends, RUNS, SEED)
      expect(findings).toEqual([])
      // With a sound journal beside it nothing may be missing at all.
      if (!ends.includes('.journal')) expect(outcomes).toMatchObject({ told: 0, alarm: 0 })
    },
  )
})
