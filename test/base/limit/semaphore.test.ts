import { expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { Semaphore } from '../../../src/base/limit/semaphore.ts'

it('runs no more than its limit at once, in the order of arrival', async () => {
  const semaphore = new Semaphore(2)
  const gates = Array.from({ length: 5 }, () => createDeferred())
  const started: number[] = []
  const runs = gates.map((gate, index) =>
    semaphore.run(() => {
      started.push(index)
      return gate.promise
    }),
  )
  expect(started).toEqual([0, 1])
  gates[1]?.resolve()
  await runs[1]
  expect(started).toEqual([0, 1, 2])
  expect(semaphore.pending).toBe(4)
  for (const gate of gates) gate.resolve()
  await Promise.all(runs)
  expect(started).toEqual([0, 1, 2, 3, 4])
  expect(semaphore.pending).toBe(0)
})

it('gives the place on when work fails', async () => {
  const semaphore = new Semaphore(1)
  const failed = semaphore.run(() => Promise.reject(new Error('broken')))
  const after = semaphore.run(() => Promise.resolve('fine'))
  await expect(failed).rejects.toThrow('broken')
  await expect(after).resolves.toBe('fine')
})
