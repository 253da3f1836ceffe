import fs, {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { lockFolder } from '../../src/store/data-folder.ts'
import { asideName, finishReplacement, replaceData } from '../../src/store/replaced-data.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const OLD = { 'a.db': 'old a', 'a.db-wal': 'old wal', id: 'old id' }
const NEW = { 'a.db': 'new a', id: 'new id', 'certificates/x.pem': 'new x' }
const CHANGES = ['renameSync', 'mkdirSync', 'openSync', 'writeSync', 'rmSync', 'fsyncSync'] as const
const original = Object.fromEntries(CHANGES.map((name) => [name, fs[name]]))

function revive(): void {
  Object.assign(fs, original)
  syncBuiltinESMExports()
}

afterEach(revive)

/**
 * From the given call that changes a file on, nothing changes any more, as after kill -9. Returns the number of
 * calls so far.
 */
function killAt(last: number): () => number {
  let calls = 0
  for (const name of CHANGES) {
    const call = original[name] as (...args: unknown[]) => unknown
    Object.assign(fs, {
      [name]: (...args: unknown[]) => {
        calls += 1
        if (calls > last) throw new Error('killed')
        return call(...args)
      },
    })
  }
  syncBuiltinESMExports()
  return () => calls
}

function dataFolder(): string {
  const folder = temporaryFolder()
  for (const [name, text] of Object.entries(OLD)) writeFileSync(join(folder, name), text)
  writeFileSync(join(folder, 'foreign'), 'stays')
  return folder
}

function fill(target: string): void {
  for (const [name, text] of Object.entries(NEW)) {
    mkdirSync(join(target, name, '..'), { recursive: true })
    writeFileSync(join(target, name), text)
  }
}

const contentOf = (folder: string, names: object) =>
  Object.fromEntries(
    Object.keys(names)
      .filter((name) => existsSync(join(folder, name)))
      .map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  )

const replace = (folder: string) =>
  replaceData({ folder, old: Object.keys(OLD), aside: 'before', fill })

describe('replaceData', () => {
  it('puts the new files in place, keeps the old ones beside them and leaves nothing else', async () => {
    const folder = dataFolder()
    await replace(folder)
    expect(readdirSync(folder).sort()).toEqual(['a.db', 'before', 'certificates', 'foreign', 'id'])
    expect(contentOf(folder, NEW)).toEqual(NEW)
    expect(contentOf(join(folder, 'before'), OLD)).toEqual(OLD)
    expect(statSync(join(folder, 'before')).mode & 0o777).toBe(0o700)
  })

  it('leaves all old or all new files when it is killed at any point, and the next start goes on', async () => {
    let outcomes = ''
    for (let last = 0; ; last += 1) {
      const folder = dataFolder()
      const calls = killAt(last)
      const isDone = await replace(folder).then(
        () => true,
        () => false,
      )
      const wasKilled = calls() > last
      revive()
      lockFolder({ folder, owner: 'agent', log: captureLog().log }).release()
      const isNew = readFileSync(join(folder, 'id'), 'utf8') === 'new id'
      expect(contentOf(folder, { ...OLD, ...NEW }), `killed at ${last}`).toEqual(isNew ? NEW : OLD)
      if (isNew) expect(contentOf(join(folder, 'before'), OLD), `killed at ${last}`).toEqual(OLD)
      expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual([])
      outcomes += isNew ? 'n' : 'o'
      if (!wasKilled) {
        expect(isDone).toBe(true)
        break
      }
    }
    expect(outcomes).toMatch(/^o{10,}n{10,}$/)
  })

  it('goes on when the next start is killed, too', async () => {
    let killed = 0
    for (let first = 0; first < 60; first += 1) {
      for (const second of [0, 1, 3, 5, 8, 12]) {
        const folder = dataFolder()
        killAt(first)
        await replace(folder).catch(() => {})
        revive()
        const states = readdirSync(folder).filter((name) => /\.(?:ready|cleared)$/.test(name))
        if (states.length === 0) break
        killed += 1
        killAt(second)
        try {
          finishReplacement(folder)
        } catch {}
        revive()
        finishReplacement(folder)
        expect(contentOf(folder, { ...OLD, ...NEW }), `killed at ${first}, ${second}`).toEqual(NEW)
        expect(contentOf(join(folder, 'before'), OLD)).toEqual(OLD)
      }
    }
    expect(killed).toBeGreaterThan(50)
  })

  it('changes nothing if the new files cannot be written', async () => {
    const folder = dataFolder()
    const failing = replaceData({
      ...{ folder, old: ['id'], aside: 'before' },
      fill: (target) => {
        fill(target)
        throw new Error('disk full')
      },
    })
    await expect(failing).rejects.toThrow('disk full')
    expect(readdirSync(folder).sort()).toEqual(['a.db', 'a.db-wal', 'foreign', 'id'])
    expect(contentOf(folder, OLD)).toEqual(OLD)
  })

  it('follows no link, and no plan that leads out of the folder', () => {
    for (const [plan, old] of [
      ['{"old":["../victim"],"aside":"before"}', 'folder'],
      ['{"old":[],"aside":"../before"}', 'folder'],
      ['{"old":["id"],"aside":"before"}', 'link'],
    ] as const) {
      const folder = dataFolder()
      const outside = temporaryFolder()
      const ready = join(folder, '.replacement.ready')
      mkdirSync(join(ready, 'new'), { recursive: true })
      if (old === 'link') symlinkSync(outside, join(ready, 'old'))
      else mkdirSync(join(ready, 'old'))
      writeFileSync(join(ready, 'plan.json'), plan)
      expect(() => finishReplacement(folder)).toThrow('Cannot finish replacing the data')
      expect(readdirSync(outside)).toEqual([])
      expect(contentOf(folder, OLD)).toEqual(OLD)
    }
  })

  it('finds a free name for the old files', () => {
    const folder = temporaryFolder()
    const name = asideName(folder, 'before-restore', 0)
    expect(name).toBe('before-restore-19700101T000000Z')
    mkdirSync(join(folder, name))
    expect(asideName(folder, 'before-restore', 0)).toBe(`${name}-2`)
  })
})
