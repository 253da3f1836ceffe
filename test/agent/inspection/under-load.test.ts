import { describe, expect, it } from 'vitest'
import { carriesTraffic, startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { eventually } from '../../helpers/eventually.ts'

describe('an inspection of a tunnel that visitors use', () => {
  it('fails none of them, while it begins, goes on and ends', async () => {
    const on = await startedOnGateway()
    await on.createTunnels('cam')
    await carriesTraffic(on)
    const { inspections } = on.agent
    const { id, spec } = on.agent.find('cam')
    const outcomes: (string | number)[] = []
    let isOver = false
    const visitors = Array.from({ length: 3 }, async () => {
      while (!isOver) outcomes.push(await on.visit('cam'))
    })
    for (let n = 0; n < 3; n += 1) {
      await inspections.start({ id, spec }, 60_000)
      expect(inspections.status(id).state).toBe('on')
      await eventually(() => expect(inspections.list(id).length).toBeGreaterThan(5))
      await inspections.stop(id)
      const { length } = outcomes
      await eventually(() => expect(outcomes.length).toBeGreaterThan(length + 5))
    }
    isOver = true
    await Promise.all(visitors)
    expect(outcomes.filter((outcome) => outcome !== 'hello')).toEqual([])
    expect(outcomes.length).toBeGreaterThan(20)
  })
})
