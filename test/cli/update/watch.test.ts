import { describe, expect, it } from 'vitest'
import { type SeenStart, watchTrial } from '../../../src/cli/update/install.ts'
import { TRIAL_MS } from '../../../src/cli/update/trial.ts'
import { updateFolder } from './update-folder.ts'

const LINKED = { version: '1.1.0', startedAt: 'once', isLinked: true, problem: '' }
const UNLINKED = { version: '1.1.0', startedAt: 'once', isLinked: false, problem: 'refused' }

interface Course {
  /** What the service shows so many ms after its start. */
  readonly look?: (ms: number, start: () => void) => SeenStart | undefined
  readonly restart?: () => void
  /** Before each look; with a way to start the service once more. */
  readonly meanwhile?: (ms: number, start: () => void) => void
}

/** A prepared update on a service that is started by `settle`, on a clock that moves with each pause. */
async function watched({ look = () => undefined, restart, meanwhile }: Course) {
  const folder = updateFolder()
  const { home, trial, clock, candidate } = folder
  const startedMs = clock.now
  trial.prepare(candidate)
  const seen: string[] = []
  const start = () => void folder.settle()
  await watchTrial({
    home,
    trial,
    clock: {
      now: () => 0,
      monotonic: () => clock.now,
      sleep: async (ms) => {
        clock.now += ms
        meanwhile?.(clock.now - startedMs, start)
      },
    },
    now: () => clock.now,
    look: async () => look(clock.now - startedMs, start),
    restart: () => {
      seen.push('restart')
      if (restart) restart()
      else start()
    },
    kill: () => {
      seen.push('kill')
      start()
    },
  })
  return { ...folder, seen, tookMs: clock.now - startedMs, state: home.state() }
}

describe('watchTrial', () => {
  it('confirms a version that was linked for a while', async () => {
    const { state, seen, tookMs } = await watched({
      look: (ms) => (ms > 3_000 ? LINKED : undefined),
    })
    expect(state?.state).toBe('confirmed')
    expect(seen).toEqual(['restart'])
    expect(tookMs).toBeGreaterThan(13_000)
  })

  it('ends one that is never ready, in time for the other to serve within a minute', async () => {
    const { state, seen, tookMs } = await watched({})
    expect(state).toMatchObject({
      state: 'rolled-back',
      reason: 'the new version was not ready in time',
    })
    expect(seen).toEqual(['restart', 'kill'])
    expect(tookMs).toBe(TRIAL_MS)
  })

  it('ends one that has no link, and says which error stood in the way', async () => {
    const { state } = await watched({ look: () => UNLINKED })
    expect(state).toMatchObject({ reason: 'the new version had no link in time (refused)' })
  })

  it('ends one whose link comes and goes', async () => {
    const { state } = await watched({ look: (ms) => (ms % 9_000 < 8_000 ? LINKED : UNLINKED) })
    expect(state?.state).toBe('rolled-back')
  })

  it('takes a start after the first for another one', async () => {
    const { state } = await watched({
      look: (ms) => ({ ...LINKED, startedAt: String(Math.floor(ms / 8_000)) }),
    })
    expect(state?.state).toBe('rolled-back')
  })

  it('leaves one alone that the service manager has started again: that undid it', async () => {
    const { state, seen } = await watched({
      look: () => LINKED,
      meanwhile: (ms, start) => {
        if (ms === 4_000) start()
      },
    })
    expect(state?.state).toBe('rolled-back')
    expect(seen).toEqual(['restart'])
  })

  it('does not kill the version before, whose start has undone the trial during the last look', async () => {
    const { state, seen } = await watched({
      look: (ms, start) => {
        if (ms === TRIAL_MS) start()
        return undefined
      },
    })
    expect(state?.state).toBe('rolled-back')
    expect(seen).toEqual(['restart'])
  })

  it('confirms no version in whose place another one runs', async () => {
    const { state } = await watched({ look: () => ({ ...LINKED, version: '1.0.0' }) })
    expect(state).toMatchObject({
      state: 'rolled-back',
      reason: 'version 1.0.0 was started instead',
    })
  })

  it('gives up where nobody restarts the service', async () => {
    const failed = await watched({
      restart: () => {
        throw new Error('no systemctl')
      },
    })
    expect(failed.state).toMatchObject({ reason: 'cannot restart the service' })
    const ignored = await watched({ restart: () => {} })
    expect(ignored.state).toMatchObject({ reason: 'the service did not restart' })
    expect(ignored.home.currentFolder()).toBeNull()
  })
})
