import { expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { Turns } from '../../src/base/turns.ts'

it('runs work of one key in order and work of another beside it', async () => {
  const turns = new Turns()
  const gate = createDeferred()
  const seen: string[] = []
  const note = (text: string) => async () => void seen.push(text)
  const first = turns.run('a', async () => {
    await gate.promise
    seen.push('a1')
  })
  const second = turns.run('a', note('a2'))
  await turns.run('b', note('b1'))
  expect(seen).toEqual(['b1'])
  gate.resolve()
  await Promise.all([first, second])
  expect(seen).toEqual(['b1', 'a1', 'a2'])
})

it('goes on after work that failed', async () => {
  const turns = new Turns()
  const failed = turns.run('a', () => Promise.reject(new Error('broken')))
  const after = turns.run('a', () => Promise.resolve('fine'))
  await expect(failed).rejects.toThrow('broken')
  await expect(after).resolves.toBe('fine')
})
