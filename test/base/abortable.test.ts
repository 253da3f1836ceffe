import { getEventListeners } from 'node:events'
import { expect, it } from 'vitest'
import { abortable } from '../../src/base/abortable.ts'
import { createDeferred } from '../../src/base/deferred.ts'

it('settles like the promise and takes its listener off the signal', async () => {
  const { signal } = new AbortController()
  const work = createDeferred<string>()
  const result = abortable(work.promise, signal)
  expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  work.resolve('done')
  await expect(result).resolves.toBe('done')
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  await expect(abortable(Promise.reject(new Error('broken')), signal)).rejects.toThrow('broken')
})

it('rejects at once when the signal is aborted, and drops what comes late', async () => {
  const controller = new AbortController()
  const work = createDeferred<string>()
  const result = abortable(work.promise, controller.signal)
  controller.abort(new Error('stopped'))
  await expect(result).rejects.toThrow('stopped')
  await expect(abortable(work.promise, controller.signal)).rejects.toThrow('stopped')
  work.reject(new Error('late'))
})
