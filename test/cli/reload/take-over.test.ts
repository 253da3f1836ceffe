import { describe, expect, it } from 'vitest'
import type { LinkState } from '../../../src/agent/link-state.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { TakeOver } from '../../../src/cli/reload/take-over.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

/** A take-over of an agent that opens what it can; the process before lets go now. */
function begin(state: LinkState = 'up') {
  const clock = new ManualClock()
  const takeOver = new TakeOver(clock)
  const settled = createDeferred()
  const gone = createDeferred()
  const stop = new AbortController()
  const agent = {
    succession: { settled: () => settled.promise },
    status: () => ({ link: { state, lastError: 'nobody answers' } }),
  }
  let outcome: string | undefined
  const complete = () => {
    takeOver.complete(agent, gone.promise, stop.signal).then(
      () => {
        outcome = 'serves'
      },
      (error: Error) => {
        outcome = error.message
      },
    )
  }
  return { clock, complete, settled, gone, stop, outcome: () => outcome }
}

describe('a process that takes another one’s place', () => {
  it('waits for its names 15 s from when the other one let go, however long it took to open the folder', async () => {
    const { clock, complete, outcome } = begin()
    await clock.advance(9_000)
    complete()
    await clock.advance(5_999)
    expect(outcome()).toBeUndefined()
    await clock.advance(1)
    expect(outcome()).toBe('serves')
  })

  it('serves at once with what it has where that took longer', async () => {
    const { clock, complete, outcome } = begin()
    await clock.advance(20_000)
    complete()
    await clock.advance(0)
    expect(outcome()).toBe('serves')
  })

  it('ends without a link by then, and says why there is none', async () => {
    const { clock, complete, outcome } = begin('waiting')
    complete()
    await clock.advance(15_000)
    expect(outcome()).toBe('The new process has lost its link: nobody answers')
  })

  it.each<[string, string, (it: ReturnType<typeof begin>) => void]>([
    ['it has its names', 'serves', ({ settled }) => settled.resolve()],
    ['the other one has gone', 'serves', ({ gone }) => gone.resolve()],
    ['it is stopped', 'Stopped before the takeover.', ({ stop }) => stop.abort()],
  ])('waits no longer when %s', async (_, expected, happen) => {
    const on = begin('waiting')
    on.complete()
    happen(on)
    await on.clock.advance(0)
    expect(on.outcome()).toBe(expected)
    expect(on.clock.sleeping).toBe(0)
  })

  it('is not begun after a stop', async () => {
    const { clock, complete, stop, outcome } = begin()
    stop.abort()
    complete()
    await clock.advance(0)
    expect(outcome()).toBe('Stopped before the takeover.')
  })
})
