import { expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { KeyedLock, Semaphore } from '../../src/base/semaphore.ts'

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

it('runs work of one key in order and work of another beside it', async () => {
  const lock = new KeyedLock()
  const gate = createDeferred()
  const seen: string[] = []
  const note = (text: string) => async () => void seen.push(text)
  const first = lock.run('a', async () => {
    await gate.promise
    seen.push('a1')
  })
  const second = lock.run('a', note('a2'))
  await lock.run('b', note('b1'))
  expect(seen).toEqual(['b1'])
  gate.resolve()
  await Promise.all([first, second])
  expect(seen).toEqual(['b1', 'a1', 'a2'])
})

it('goes on after work that failed', async () => {
  const lock = new KeyedLock()
  const failed = lock.run('a', () => Promise.reject(new Error('broken')))
  const after = lock.run('a', () => Promise.resolve('fine'))
  await expect(failed).rejects.toThrow('broken')
  await expect(after).resolves.toBe('fine')
})

it('runs some work alone: after all that came before, before all that comes later', async () => {
  const lock = new KeyedLock()
  const [before, alone] = [createDeferred(), createDeferred()]
  const seen: string[] = []
  const work = (text: string, gate?: { promise: Promise<void> }) => async () => {
    seen.push(`${text} begins`)
    await gate?.promise
    seen.push(`${text} ends`)
  }
  const all = [
    lock.run('a', work('a', before)),
    lock.runAlone(work('alone', alone)),
    lock.runAlone(work('alone too')),
    lock.run('b', work('b')),
  ]
  await Promise.resolve()
  expect(seen).toEqual(['a begins'])
  before.resolve()
  await all[0]
  alone.resolve()
  await Promise.all(all)
  expect(seen.slice(0, 4)).toEqual(['a begins', 'a ends', 'alone begins', 'alone ends'])
  const at = (text: string) => seen.indexOf(text)
  expect(at('alone too ends')).toBe(at('alone too begins') + 1)
  expect(at('b ends')).toBe(at('b begins') + 1)
})

it('goes on after work that ran alone and failed', async () => {
  const lock = new KeyedLock()
  const failed = lock.runAlone(() => Promise.reject(new Error('broken')))
  const after = lock.run('a', () => Promise.resolve('fine'))
  await expect(failed).rejects.toThrow('broken')
  await expect(after).resolves.toBe('fine')
})
