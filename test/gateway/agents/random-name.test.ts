import { expect, it } from 'vitest'
import { RANDOM_LABEL_BITS, randomLabel } from '../../../src/gateway/agents/random-name.ts'
import { findDomainProblem } from '../../../src/gateway/records/domain-name.ts'

it('a random name is readable, valid, and one of too many to be guessed', () => {
  const labels = Array.from({ length: 2_000 }, randomLabel)
  for (const label of labels) {
    expect(label).toMatch(/^[a-z]{3,10}-[a-z]{3,10}-[a-km-np-z2-9]{7}$/)
    expect(findDomainProblem(`${label}.site.test`)).toBeUndefined()
  }
  expect(new Set(labels).size).toBe(labels.length)
  expect(RANDOM_LABEL_BITS).toBeGreaterThanOrEqual(50)
  // Each part varies as far as the figure says.
  const firsts = new Set(labels.map((label) => label.split('-')[0]))
  const seconds = new Set(labels.map((label) => label.split('-')[1]))
  expect(Math.min(firsts.size, seconds.size)).toBeGreaterThan(150)
})
