import { describe, expect, it } from 'vitest'
import { DeadlineError, withDeadline } from '../../src/base/deadline.ts'

describe('withDeadline', () => {
  it('rejects a promise that never settles, naming the work', async () => {
    const never = new Promise<void>(() => {})
    const late = withDeadline(never, 5, 'opening the session')
    await expect(late).rejects.toThrow('opening the session took longer than 5 ms')
    await expect(late).rejects.toBeInstanceOf(DeadlineError)
  })

  it('hands on what came in time', async () => {
    await expect(withDeadline(Promise.resolve(7), 1_000, 'x')).resolves.toBe(7)
    await expect(withDeadline(Promise.reject(new Error('no')), 1_000, 'x')).rejects.toThrow('no')
  })
})
