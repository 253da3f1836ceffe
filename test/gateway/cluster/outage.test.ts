import { expect, it, onTestFinished } from 'vitest'
import { Outage } from '../../../src/gateway/cluster/outage.ts'
import { NoAnswerError } from '../../../src/gateway/ports/other-gateways.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

/** A node with others, of which each is firm, is not, or does not answer. */
function openOutage(others: Record<string, boolean | undefined>) {
  const clock = new ManualClock()
  const own = { isHit: false, isFine: true }
  const asked: string[] = []
  const answers = new Map<string, () => unknown>()
  const outage = new Outage({
    isHit: () => own.isHit,
    isFine: () => own.isFine,
    questions: {
      on: (ask, answer) => void answers.set(ask, () => answer({})),
      ask: async (id) => {
        asked.push(id)
        if (others[id] === undefined) throw new NoAnswerError(id)
        return { is_firm: others[id] }
      },
    },
    others: () => Object.keys(others),
    clock,
  })
  outage.start()
  onTestFinished(() => outage.stop())
  return { outage, clock, own, asked, others, answers }
}

it('asks nobody while there is none', async () => {
  const { outage, clock, asked } = openOutage({ two: true })
  await clock.advance(60_000)
  expect([outage.isOwn, asked]).toEqual([false, []])
})

it('is its own when one of the others is fine', async () => {
  const { outage, clock, own } = openOutage({ two: undefined, three: false, four: true })
  own.isHit = true
  // Nobody has been asked.
  expect(outage.isOwn).toBe(false)
  await clock.advance(1_000)
  expect(outage.isOwn).toBe(true)
  own.isHit = false
  expect(outage.isOwn).toBe(false)
})

it('is that of all when none of the others says that it is fine', async () => {
  const { outage, clock, own, others } = openOutage({ two: undefined, three: false })
  own.isHit = true
  await clock.advance(5_000)
  expect(outage.isOwn).toBe(false)
  others.three = true
  await clock.advance(1_000)
  expect(outage.isOwn).toBe(true)
  others.three = false
  await clock.advance(1_000)
  expect(outage.isOwn).toBe(false)
})

it('answers the others how it is itself', () => {
  const { answers, own } = openOutage({})
  expect(answers.get('lease')?.()).toEqual({ is_firm: true })
  own.isFine = false
  expect(answers.get('lease')?.()).toEqual({ is_firm: false })
})
