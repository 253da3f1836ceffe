import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { KeptValues } from '../../src/agent/kept-values.ts'
import { type StoredTunnel, TUNNEL_MIGRATIONS, TunnelStore } from '../../src/agent/tunnel-store.ts'
import { type Database, openDatabase } from '../../src/store/database.ts'
import type { Migration } from '../../src/store/migrations.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function open(path: string, migrations: readonly Migration[] = TUNNEL_MIGRATIONS): Database {
  return openDatabase({
    path,
    migrations,
    applicationId: 1,
    log: captureLog().log,
    clock: new ManualClock(),
  })
}

function setUp() {
  const path = join(temporaryFolder(), 'agent.db')
  const database = open(path)
  onTestFinished(() => database.close())
  return { path, database, store: new TunnelStore(database) }
}

function tunnel(name: string, change: Partial<StoredTunnel['spec']> = {}): StoredTunnel {
  return {
    id: `tun_${name}`,
    spec: {
      protocol: 'http',
      forwardsTo: 'localhost:8001',
      domain: `${name}.test`,
      policy: null,
      ...change,
    },
    createdAt: 1_000,
    updatedAt: 2_000,
  }
}

/** Changes the file as a fault of the storage would: behind the store's back. */
function add(store: TunnelStore, stored: StoredTunnel): void {
  store.insert(stored)
  store.keep(stored.id)
}

function damage(path: string, sql: string): void {
  const file = new Sqlite(path)
  file.exec(sql)
  file.close()
}

describe('TunnelStore', () => {
  it('gives back what was stored, oldest first, over a restart', () => {
    const { path, store, database } = setUp()
    const policy = { on_http_request: [{ name: 'ü', actions: [] }] }
    add(store, tunnel('b', { policy }))
    add(store, tunnel('a'))
    database.close()
    const again = open(path)
    onTestFinished(() => again.close())
    expect(new TunnelStore(again).load()).toEqual({
      tunnels: [tunnel('b', { policy }), tunnel('a')],
      damaged: [],
    })
  })

  it('keeps how a service is asked, and rows of the time before that as they are', () => {
    const path = join(temporaryFolder(), 'agent.db')
    const [first, values] = TUNNEL_MIGRATIONS
    const before = open(path, [first, values])
    const columns = [
      'id',
      'protocol',
      'forwards_to',
      'domain',
      'policy',
      'created_at',
      'updated_at',
    ]
    const row = ['tun_a', 'http', 'localhost:8001', 'a.test', null, 1_000, 2_000]
    const checksum = createHash('sha256').update(JSON.stringify(row)).digest('hex').slice(0, 16)
    const places = row.map(() => '?').join(', ')
    before.write(() =>
      before
        .prepare(`INSERT INTO tunnels (${columns.join(', ')}, checksum) VALUES (${places}, ?)`)
        .run(...row, checksum),
    )
    before.close()
    const database = open(path)
    onTestFinished(() => database.close())
    const store = new TunnelStore(database)
    const upstream = { timeout: 7, health: '/alive' } as const
    add(store, tunnel('b', { upstream }))
    expect(store.load().tunnels).toEqual([tunnel('a'), tunnel('b', { upstream })])
    const pooled = tunnel('c', { isPooled: true })
    add(store, pooled)
    expect(store.load().tunnels[2]).toEqual(pooled)
    damage(path, "UPDATE tunnels SET pooled = NULL WHERE id = 'tun_c'")
    expect(store.load().damaged).toMatchObject([{ id: 'tun_c', problem: 'the checksum is wrong' }])
    store.delete('tun_c')
    store.replace(tunnel('a'), tunnel('a', { upstream }))
    store.keepReplacement('tun_a')
    store.replace(tunnel('b', { upstream }), tunnel('b'))
    store.keepReplacement('tun_b')
    expect(store.load().tunnels).toEqual([tunnel('a', { upstream }), tunnel('b')])
    damage(path, "UPDATE tunnels SET upstream = NULL WHERE id = 'tun_a'")
    expect(store.load().damaged).toMatchObject([{ id: 'tun_a', problem: 'the checksum is wrong' }])
  })

  it('forgets a tunnel that nobody kept', () => {
    const { store } = setUp()
    store.insert(tunnel('a'))
    add(store, tunnel('b'))
    expect(store.load().tunnels).toEqual([tunnel('b')])
    store.deleteRemoved(captureLog().log)
    store.keep('tun_a')
    expect(store.load().tunnels).toEqual([tunnel('b')])
  })

  it('keeps the place of a tunnel that changes', () => {
    const { store } = setUp()
    add(store, tunnel('a'))
    add(store, tunnel('b'))
    const changed = { ...tunnel('a', { forwardsTo: 'localhost:9' }), updatedAt: 3_000 }
    store.replace(tunnel('a'), changed)
    store.keepReplacement('tun_a')
    expect(store.load().tunnels).toEqual([changed, tunnel('b')])
  })

  it('gives what was before a change until that is kept, also when it could not be put back', () => {
    const { store } = setUp()
    add(store, tunnel('a'))
    const changed = { ...tunnel('a', { forwardsTo: 'localhost:9' }), updatedAt: 3_000 }
    store.replace(tunnel('a'), changed)
    expect(store.load()).toEqual({ tunnels: [tunnel('a')], damaged: [] })
    store.putBack(tunnel('a'))
    expect(store.load().tunnels).toEqual([tunnel('a')])
    store.keepReplacement('tun_a')
    expect(store.load().tunnels).toEqual([tunnel('a')])
  })

  it('shows no tunnel as it was once that is damaged', () => {
    const { path, store } = setUp()
    for (const name of ['a', 'b', 'c']) {
      add(store, tunnel(name))
      store.replace(tunnel(name), {
        ...tunnel(name, { forwardsTo: 'localhost:9' }),
        updatedAt: 3_000,
      })
    }
    damage(
      path,
      "UPDATE replaced_tunnels SET tunnel = replace(tunnel, '1', '2') WHERE id = 'tun_a'",
    )
    damage(path, "UPDATE replaced_tunnels SET tunnel = 'x' WHERE id = 'tun_b'")
    const { tunnels, damaged } = store.load()
    expect(tunnels.map(({ id, spec }) => [id, spec.forwardsTo])).toEqual([
      ['tun_b', 'localhost:9'],
      ['tun_c', tunnel('c').spec.forwardsTo],
    ])
    expect(damaged).toMatchObject([{ problem: expect.stringMatching(/./) }])
  })

  it('forgets with a tunnel what that was before', () => {
    const { path, store } = setUp()
    add(store, tunnel('a'))
    store.replace(tunnel('a'), { ...tunnel('a', { forwardsTo: 'localhost:9' }), updatedAt: 3_000 })
    store.delete('tun_a')
    const rows = new Sqlite(path).prepare('SELECT count(*) AS n FROM replaced_tunnels').get()
    expect(rows).toEqual({ n: 0 })
  })

  it('forgets a tunnel that was marked as removed, also when its row could not be deleted', () => {
    const { store } = setUp()
    add(store, tunnel('a'))
    add(store, tunnel('b'))
    store.markRemoved('tun_a', 3_000)
    expect(store.load().tunnels).toEqual([tunnel('b')])
    store.deleteRemoved(captureLog().log)
    add(store, tunnel('a'))
    store.delete('tun_b')
    expect(store.load().tunnels).toEqual([tunnel('a')])
  })

  it.each([
    ["UPDATE tunnels SET forwards_to = 'localhost:8005' WHERE id = 'tun_b'", /checksum/],
    ["UPDATE tunnels SET policy = '{}' WHERE id = 'tun_b'", /checksum/],
    ["UPDATE tunnels SET created_at = 1001 WHERE id = 'tun_b'", /checksum/],
    ["UPDATE tunnels SET checksum = '' WHERE id = 'tun_b'", /checksum/],
    ["UPDATE tunnels SET domain = CAST(x'ff62' AS TEXT) WHERE id = 'tun_b'", /checksum/],
  ])('puts a damaged row aside and shows the others: %s', (sql, problem) => {
    const { path, store } = setUp()
    for (const name of ['a', 'b', 'c']) add(store, tunnel(name))
    damage(path, sql)
    const { tunnels, damaged } = store.load()
    expect(tunnels).toEqual([tunnel('a'), tunnel('c')])
    expect(damaged).toEqual([
      { id: 'tun_b', domain: expect.any(String), problem: expect.stringMatching(problem) },
    ])
  })

  it('lets a new tunnel take the domain of a damaged row', () => {
    const { path, store } = setUp()
    add(store, tunnel('a'))
    damage(path, "UPDATE tunnels SET checksum = 'x'")
    const replacement = { ...tunnel('a'), id: 'tun_new' }
    add(store, replacement)
    expect(store.load()).toEqual({ tunnels: [replacement], damaged: [] })
  })
})

describe('KeptValues', () => {
  it('remembers the last value of a name', () => {
    const { database } = setUp()
    const kept = new KeptValues(database)
    expect(kept.get('public-port')).toBeUndefined()
    kept.set('public-port', '8443')
    kept.set('public-port', '443')
    expect(kept.get('public-port')).toBe('443')
    expect(new KeptValues(database).get('public-port')).toBe('443')
  })

  it('does not write what it has', () => {
    const { database } = setUp()
    const changes = database.prepare<[], { n: number }>('SELECT total_changes() AS n')
    const kept = new KeptValues(database)
    kept.set('public-port', '8443')
    const before = changes.get()?.n
    kept.set('public-port', '8443')
    expect(changes.get()?.n).toBe(before)
  })
})
