import fs, { existsSync, mkdirSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { updateFolder } from './update-folder.ts'

/** What changes a disk, or says that it has changed. */
const CALLS = [
  'chmodSync',
  'chownSync',
  'copyFileSync',
  'fsyncSync',
  'mkdirSync',
  'openSync',
  'renameSync',
  'rmSync',
  'symlinkSync',
  'writeSync',
] as const

/**
 * Runs it until it has changed the disk so many times; then nothing that it does has an effect, what it
 * does for an error included. True when it came to its end before.
 */
function cutAfter(changes: number, run: () => void): boolean {
  let made = 0
  const writable = fs as unknown as Record<string, (...args: unknown[]) => unknown>
  const whole = CALLS.map((name) => [name, writable[name]] as const)
  for (const [name, call] of whole) {
    writable[name] = (...args) => {
      if (made >= changes) throw new Error('the power is gone')
      made += 1
      return call?.(...args)
    }
  }
  syncBuiltinESMExports()
  try {
    run()
    return made < changes
  } catch {
    return false
  } finally {
    Object.assign(writable, Object.fromEntries(whole))
    syncBuiltinESMExports()
  }
}

type Folder = ReturnType<typeof updateFolder>

const STEPS: readonly {
  readonly step: string
  /** What has happened before it. */
  readonly before: (folder: Folder) => void
  readonly run: (folder: Folder) => void
  /** How many calls it has at least: so many cuts are tried. */
  readonly atLeast: number
}[] = [
  {
    step: 'preparing it',
    before: () => {},
    run: ({ trial, candidate }) => trial.prepare(candidate),
    atLeast: 4,
  },
  {
    step: 'the start that begins it',
    before: ({ trial, candidate }) => trial.prepare(candidate),
    run: ({ settle }) => void settle(),
    atLeast: 25,
  },
  {
    step: 'the start that undoes it',
    before: ({ trial, candidate, settle, put }) => {
      trial.prepare(candidate)
      settle()
      put('migrated')
    },
    run: ({ settle }) => void settle(),
    atLeast: 8,
  },
  {
    step: 'saying why it is undone',
    before: ({ trial, candidate, settle, put }) => {
      trial.prepare(candidate)
      settle()
      put('migrated')
    },
    run: ({ trial }) => trial.blame('it had no link'),
    atLeast: 4,
  },
]

/** On a package that was never updated, and on one that was. */
const STARTS = [
  { name: 'the version of the package', current: null },
  { name: 'an earlier update', current: 'versions/1.0.0' },
] as const

describe.each(STARTS)('an update of $name', ({ current }) => {
  const opened = () => {
    const folder = updateFolder()
    if (current !== null) {
      folder.addVersion('1.0.0')
      folder.home.switchTo(current)
    }
    return folder
  }

  describe.each(STEPS)('whose power is cut in $step', ({ before, run, atLeast }) => {
    it.each([
      ['boot', false],
      ['another boot', false],
      ['boot', true],
    ])('leads back to what was there in %s, with a folder made again: %s', (boot, isMadeAgain) => {
      let cuts = 0
      for (let isWhole = false; !isWhole; cuts++) {
        const folder = opened()
        before(folder)
        isWhole = cutAfter(cuts, () => run(folder))
        // The start after the cut, and as many as it takes until no trial is on.
        if (isMadeAgain) mkdirSync(folder.dataDir, { recursive: true })
        folder.settleIn(boot)
        if (folder.home.state()?.state === 'trying') folder.settleIn(boot)
        const { home, dataDir, read } = folder
        expect(['rolled-back', undefined], `cut ${cuts}`).toContain(home.state()?.state)
        expect([home.currentFolder(), read()], `cut ${cuts}`).toEqual([current, 'before'])
        if (current !== null) expect(existsSync(join(home.path, current))).toBe(true)
        expect(existsSync(`${dataDir}.before-update`), `cut ${cuts}`).toBe(false)
      }
      expect(cuts).toBeGreaterThan(atLeast)
    })
  })

  it('keeps all or nothing when the power is cut as it is confirmed', () => {
    let cuts = 0
    const seen = new Set<string | undefined>()
    for (let isWhole = false; !isWhole; cuts++) {
      const folder = opened()
      const { trial, candidate, settle, settleIn, put, read, home } = folder
      trial.prepare(candidate)
      settle()
      put('migrated')
      isWhole = cutAfter(cuts, () => trial.confirm())
      settleIn('another boot')
      const state = home.state()?.state
      seen.add(state)
      const expected = state === 'confirmed' ? ['versions/1.1.0', 'migrated'] : [current, 'before']
      expect([home.currentFolder(), read()], `cut ${cuts}`).toEqual(expected)
    }
    expect(seen).toEqual(new Set(['rolled-back', 'confirmed']))
  })
})
