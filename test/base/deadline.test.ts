import { getEventListeners } from 'node:events'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { abortable, abortedAfter, DeadlineError, withDeadline } from '../../src/base/deadline.ts'
import { createDeferred } from '../../src/base/deferred.ts'

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

/** Work that goes on until its signal ends it. */
function endless(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    if (signal.aborted) reject(signal.reason)
  })
}

describe('abortedAfter', () => {
  it('ends work that takes too long, also when the garbage is collected meanwhile', async () => {
    setFlagsFromString('--expose-gc')
    const collectGarbage = runInNewContext('gc') as () => void
    const stop = new AbortController()
    const late = abortedAfter(50, stop.signal, endless)
    const collecting = setInterval(collectGarbage, 5)
    await expect(late).rejects.toMatchObject({ name: 'TimeoutError' })
    clearInterval(collecting)
  })

  it('ends it when it is told to, before or during the work', async () => {
    const stop = new AbortController()
    const stopped = abortedAfter(60_000, stop.signal, endless)
    stop.abort(new Error('stopped'))
    await expect(stopped).rejects.toThrow('stopped')
    await expect(abortedAfter(60_000, stop.signal, endless)).rejects.toThrow('stopped')
  })

  it('hands on what came in time, and lets go of the signal that stops it', async () => {
    const stop = new AbortController()
    let given: AbortSignal | undefined
    const work = async (signal: AbortSignal) => {
      given = signal
      return 7
    }
    await expect(abortedAfter(60_000, stop.signal, work)).resolves.toBe(7)
    stop.abort()
    expect(given?.aborted).toBe(false)
  })
})

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

describe('one signal for many tasks', () => {
  it('makes Node print no warning of a leak, and keeps no listener', async () => {
    const stop = new AbortController()
    const warnings: string[] = []
    const onWarning = ({ name }: Error) => void warnings.push(name)
    process.on('warning', onWarning)
    const { promise, resolve } = createDeferred<void>()
    const tasks = Array.from({ length: 20 }, () => [
      abortedAfter(60_000, stop.signal, () => promise),
      abortable(promise, stop.signal),
      systemClock.sleep(1, stop.signal),
    ])
    resolve()
    await Promise.all(tasks.flat())
    process.off('warning', onWarning)
    expect([warnings, getEventListeners(stop.signal, 'abort')]).toEqual([[], []])
  })
})
