import { expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { Limiter } from '../../src/base/limiter.ts'

it('runs no more than its limit at once, in the order of arrival', async () => {
  const limiter = new Limiter(2)
  const gates = Array.from({ length: 5 }, () => createDeferred())
  const started: number[] = []
  const runs = gates.map((gate, index) =>
    limiter.run(() => {
      started.push(index)
      return gate.promise
    }),
  )
  expect(started).toEqual([0, 1])
  gates[1]?.resolve()
  await runs[1]
  expect(started).toEqual([0, 1, 2])
  expect(limiter.pending).toBe(4)
  for (const gate of gates) gate.resolve()
  await Promise.all(runs)
  expect(started).toEqual([0, 1, 2, 3, 4])
  expect(limiter.pending).toBe(0)
})

it('gives the place on when work fails', async () => {
  const limiter = new Limiter(1)
  const failed = limiter.run(() => Promise.reject(new Error('broken')))
  const after = limiter.run(() => Promise.resolve('fine'))
  await expect(failed).rejects.toThrow('broken')
  await expect(after).resolves.toBe('fine')
})
