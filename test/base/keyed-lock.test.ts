import { expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { KeyedLock } from '../../src/base/keyed-lock.ts'

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
