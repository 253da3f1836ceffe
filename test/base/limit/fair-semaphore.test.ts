import { describe, expect, it } from 'vitest'
import { FairSemaphore } from '../../../src/base/limit/fair-semaphore.ts'

/** Work that ends when it is told to; `begun` are the keys in the order in which their work began. */
function startWork(semaphore: FairSemaphore) {
  const begun: string[] = []
  const ends: (() => void)[] = []
  const work = (key: string) =>
    semaphore.run(key, () => {
      begun.push(key)
      return new Promise<void>((resolve) => ends.push(resolve))
    })
  return { begun, ends, work }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('FairSemaphore', () => {
  it('runs as much as there are places, and of one key no more than its share', async () => {
    const semaphore = new FairSemaphore({ limit: 3, perKey: 2 })
    const { begun, work } = startWork(semaphore)
    for (const key of ['a', 'a', 'a']) void work(key)
    await turn()
    expect([begun, semaphore.isShort]).toEqual([['a', 'a'], false])
    for (const key of ['b', 'c']) void work(key)
    await turn()
    expect([begun, semaphore.isShort]).toEqual([['a', 'a', 'b'], true])
  })

  it('gives a free place to the key with the fewest, then to the first in line', async () => {
    const semaphore = new FairSemaphore({ limit: 2, perKey: 2 })
    const { begun, ends, work } = startWork(semaphore)
    for (const key of ['a', 'a', 'a', 'b', 'c']) void work(key)
    for (let n = 0; n < 5; n += 1) {
      await turn()
      ends[n]?.()
    }
    await turn()
    expect(begun).toEqual(['a', 'a', 'b', 'a', 'c'])
  })

  it('frees the place of work that fails', async () => {
    const semaphore = new FairSemaphore({ limit: 1, perKey: 1 })
    const failed = semaphore.run('a', () => Promise.reject(new Error('no')))
    await expect(failed).rejects.toThrow('no')
    expect(await semaphore.run('a', async () => 1)).toBe(1)
  })
})
