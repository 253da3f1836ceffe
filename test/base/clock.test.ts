import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'

describe('systemClock', () => {
  it('rejects a sleep with the reason of an aborted signal', async () => {
    const controller = new AbortController()
    const sleep = systemClock.sleep(60_000, controller.signal)
    controller.abort(new Error('stopped'))
    await expect(sleep).rejects.toThrow('stopped')
  })

  it('leaves no listener behind when a sleep ends by itself', async () => {
    const { signal } = new AbortController()
    await systemClock.sleep(1, signal)
    expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  })

  it('does not sleep at all with a signal that was aborted before', async () => {
    await expect(systemClock.sleep(60_000, AbortSignal.abort('gone'))).rejects.toBe('gone')
  })
})
