import { expect, it, onTestFinished } from 'vitest'
import type { LeaseState } from '../../../src/gateway/cluster/lease-state.ts'
import { Outage } from '../../../src/gateway/site/outage.ts'
import { NoAnswerError } from '../../../src/gateway/site/questions.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

/** A node with others, of which each is firm, is not, or does not answer. */
function openOutage(others: Record<string, boolean | undefined>) {
  const clock = new ManualClock()
  const lease: { state: LeaseState; isFirm: boolean } = { state: 'held', isFirm: true }
  const asked: string[] = []
  const answers = new Map<string, () => unknown>()
  const outage = new Outage({
    lease,
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
  return { outage, clock, lease, asked, others, answers }
}

it('asks nobody while there is none', async () => {
  const { outage, clock, asked } = openOutage({ two: true })
  await clock.advance(60_000)
  expect([outage.isOwn, asked]).toEqual([false, []])
})

it('is its own when one of the others reaches PostgreSQL', async () => {
  const { outage, clock, lease } = openOutage({ two: undefined, three: false, four: true })
  lease.state = 'overdue'
  // Nobody has been asked.
  expect(outage.isOwn).toBe(false)
  await clock.advance(1_000)
  expect(outage.isOwn).toBe(true)
  lease.state = 'held'
  expect(outage.isOwn).toBe(false)
})

it('is that of all when none of the others says that it reaches PostgreSQL', async () => {
  const { outage, clock, lease, others } = openOutage({ two: undefined, three: false })
  lease.state = 'overdue'
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
  const { answers, lease } = openOutage({})
  lease.isFirm = false
  expect(answers.get('lease')?.()).toEqual({ is_firm: false })
})
