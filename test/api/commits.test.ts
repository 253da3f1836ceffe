import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { readJournal } from '../../src/store/journal/journal-text.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { startApi } from './started-api.ts'

const DOMAIN = 'device1.site.test'
const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: DOMAIN }

/** Each change is a commit, whose log SQLite syncs once, and a line of the journal, synced once. */
async function startCounted() {
  // Events are commits of their own, at any time.
  const api = await startApi({ eventClock: new ManualClock() })
  let lines = 0
  const { fdatasyncSync } = fs
  fs.fdatasyncSync = (descriptor) => {
    lines += 1
    fdatasyncSync(descriptor)
  }
  syncBuiltinESMExports()
  onTestFinished(() => {
    fs.fdatasyncSync = fdatasyncSync
    syncBuiltinESMExports()
  })
  const commits = () => readJournal(join(api.folder, 'agent.db.journal'))?.n ?? 0
  /** What one request writes, once everything that goes with a start is written. */
  const count = async (method: string, path: string, body?: unknown) => {
    const before = { commits: commits(), lines }
    const { status } = await api.call(method, path, body)
    return { status, commits: commits() - before.commits, lines: lines - before.lines }
  }
  // The first use of the token and the public port are noted once.
  await api.call('POST', '/tunnels', { ...SPEC, domain: 'warm.site.test' })
  return { ...api, count }
}

it('writes each change of a tunnel in two commits: what is asked for, and what became of it', async () => {
  const { count, call } = await startCounted()
  expect(await count('POST', '/tunnels', SPEC)).toEqual({ status: 200, commits: 2, lines: 2 })
  const moved = { ...SPEC, forwards_to: 'localhost:8002' }
  const path = `/tunnels/${DOMAIN}`
  expect(await count('PUT', path, moved)).toEqual({ status: 200, commits: 2, lines: 2 })
  expect(await count('DELETE', path)).toEqual({ status: 204, commits: 2, lines: 2 })
  expect(await count('GET', '/tunnels')).toEqual({ status: 200, commits: 0, lines: 0 })
  const { entries } = (await call('GET', '/audit?limit=3')).json
  expect(entries).toMatchObject([
    { action: 'tunnel.delete', target: { name: DOMAIN }, result: 'ok' },
    { action: 'tunnel.replace', target: { name: DOMAIN }, result: 'ok' },
    { action: 'tunnel.create', target: { name: DOMAIN }, result: 'ok' },
  ])
})

it('writes a whole set of tunnels in one commit, its rows of the trail with it', async () => {
  const { count, call } = await startCounted()
  const named = (name: string) => ({ ...SPEC, domain: `${name}.site.test` })
  const [a, b, c] = ['a', 'b', 'c'].map(named)
  expect(await count('PUT', '/tunnels', [a, b])).toEqual({ status: 200, commits: 1, lines: 1 })
  const moved = { ...a, forwards_to: 'localhost:8002' }
  expect(await count('PUT', '/tunnels', [moved, c])).toEqual({ status: 200, commits: 1, lines: 1 })
  expect(await count('PUT', '/tunnels?dry_run=true', [])).toMatchObject({ commits: 0, lines: 0 })
  const { entries } = (await call('GET', '/audit?limit=3')).json
  expect(entries.map(({ action }: { action: string }) => action)).toEqual([
    'tunnel.delete',
    'tunnel.create',
    'tunnel.replace',
  ])
})
