import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { ClaimHeldError, sharedKey } from '../../../../src/gateway/cluster/nodes/claim.ts'
import type { ClusterOptions } from '../../../../src/gateway/cluster/nodes/cluster.ts'
import { LEASE_TIMINGS } from '../../../../src/gateway/cluster/nodes/node-lease.ts'
import { PostgresSession } from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import type { DatabaseAddress } from '../../../../src/settings/database-url.ts'
import { checkClaims } from '../../../helpers/claims-checker.ts'
import { claimOf, FAST, nodeFacts, TestNode } from '../../../helpers/cluster-node.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'

/** Minutes of it are `npm run test:claims`. */
const CHECK_S = Number(process.env.CLAIMS_CHECK_SECONDS ?? 10)

const SLOW = { beatMs: 60_000, leaseMs: 600_000 }

describe.skipIf(!hasPostgres)('Cluster', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const startNode = async (
    address: DatabaseAddress,
    id: string,
    options: Partial<ClusterOptions> = {},
  ) => {
    const node = await TestNode.start(address, id, options)
    onTestFinished(() => node.stop())
    return node
  }
  /** Nodes that never give each other up, however busy the machine is. */
  const startTwo = async (given: Partial<ClusterOptions> = {}) => {
    const options = { timings: { ...FAST, leaseMs: 60_000 }, ...given }
    const address = await postgres.database()
    const one = await startNode(address, 'one', options)
    const two = await startNode(address, 'two', options)
    return { address, one, two }
  }

  it('gives a name to one node, and shows the others where it is', async () => {
    const { one, two } = await startTwo()
    const claim = claimOf('a.example')
    await one.cluster.claims.claim(claim)
    expect(one.owns(claim)).toBe(true)
    await eventually(() => {
      expect(two.cluster.table.find('https', 'a.example')).toEqual({
        ...{ type: 'remote', nodeId: 'one', protocol: 'https', host: 'a.example' },
        ...{ url: 'https://a.example', ownerId: 'bot_1', endsTls: false },
      })
    })
    const refused = two.cluster.claims.claim(claimOf('a.example'))
    await expect(refused).rejects.toThrow(ClaimHeldError)
    await expect(refused).rejects.toMatchObject({
      holder: { nodeId: 'one', epoch: 1, facts: claim.facts },
    })
    expect(one.cluster.table.find('https', 'a.example')).toBeUndefined()
    await one.cluster.claims.release(claim)
    expect(one.owns(claim)).toBe(false)
    await two.cluster.claims.claim(claimOf('a.example'))
    await eventually(() => {
      expect(one.cluster.table.find('https', 'a.example')?.nodeId).toBe('two')
    })
  })

  it('holds names at other entrances, and of other accounts, for others', async () => {
    const { one, two } = await startTwo()
    const internal = claimOf('db.internal', { protocol: 'http' })
    await one.cluster.claims.claim(claimOf('a.example'))
    await one.cluster.claims.claim(internal)
    await one.cluster.claims.claim({ ...internal, key: sharedKey(internal.key) })
    await two.cluster.claims.claim(claimOf('a.example', { protocol: 'http' }))
    await expect(
      two.cluster.claims.claim(claimOf('a.example', { protocol: 'tls' })),
    ).rejects.toThrow(ClaimHeldError)
    const { table } = two.cluster
    await eventually(() => expect(table.size).toBe(4))
    expect(table.findInternal('http', 'db.internal', 'bot_1')?.nodeId).toBe('one')
    expect(table.findInternal('http', 'db.internal', 'bot_2')?.nodeId).toBe('one')
    await two.cluster.claims.claim(claimOf('db.internal', { protocol: 'http', ownerId: 'bot_2' }))
    await eventually(() => {
      expect(table.findInternal('http', 'db.internal', 'bot_2')).toBeUndefined()
    })
    expect(table.find('http', 'db.internal')).toBeUndefined()
  })

  it('lets the members of a pool share a name, of one account', async () => {
    const { one, two } = await startTwo()
    await one.cluster.claims.claim(claimOf('p.example', {}, 'd1'))
    await two.cluster.claims.claim(claimOf('p.example', {}, 'd2'))
    await expect(two.cluster.claims.claim(claimOf('p.example'))).rejects.toThrow(ClaimHeldError)
    const stranger = claimOf('p.example', { ownerId: 'bot_2' }, 'd3')
    await expect(two.cluster.claims.claim(stranger)).rejects.toThrow(ClaimHeldError)
  })

  it('writes what waits in one message', async () => {
    const { one, two } = await startTwo()
    const claims = Array.from({ length: 2_500 }, (_, n) => claimOf(`n${n}.example`))
    await Promise.all(claims.map((claim) => one.cluster.claims.claim(claim)))
    const [row] = await postgresOf(two, 'SELECT number FROM claim_head')
    expect(row).toEqual({ number: 3 })
    await eventually(() => expect(two.cluster.table.size).toBe(2_500))
    await Promise.all(claims.map((claim) => one.cluster.claims.release(claim)))
    await eventually(() => expect(two.cluster.table.size).toBe(0))
  })

  it('lets no odd word of one device stop the claims of others', async () => {
    const { one, two } = await startTwo()
    const odd = claimOf('a.example', { deviceId: 'nul \0, half a pair \ud800' })
    await Promise.all([odd, claimOf('b.example')].map((claim) => one.cluster.claims.claim(claim)))
    await eventually(() => expect(two.cluster.table.size).toBe(2))
    expect(two.cluster.table.get(odd.key)?.facts.deviceId).toBe('nul \ufffd, half a pair \ufffd')
  })

  it('takes a name from a live node only when that gives it up', async () => {
    const served = new Set<string>()
    const asked: string[] = []
    const { one, two } = await startTwo({
      give: async (own, wanted) => {
        asked.push(`${own.facts.deviceId} ${wanted.facts.deviceId}`)
        served.delete(own.key.host)
        return true
      },
    })
    await one.cluster.claims.claim(claimOf('a.example', { deviceId: 'old' }))
    served.add('a.example')
    const wanted = claimOf('a.example', { deviceId: 'new' })
    await two.cluster.claims.claim(wanted, ({ nodeId }) => {
      expect(nodeId).toBe('one')
      return true
    })
    expect(asked).toContain('old new')
    expect(served.size).toBe(0)
    expect([one.owns(wanted), two.owns(wanted)]).toEqual([false, true])
  })

  it('is refused at once where the other node says that it keeps the name', async () => {
    const asked: string[] = []
    const said: string[] = []
    const nodes: TestNode[] = []
    const { one, two } = await startTwo({
      ask: async (request) => {
        asked.push(request.heldBy)
        const given = (await nodes[0]?.cluster.claims.asked(request)) ?? 'unknown'
        said.push(given)
        return given
      },
      give: async (_own, { facts }) => facts.deviceId === 'mine',
    })
    nodes.push(one)
    await one.cluster.claims.claim(claimOf('a.example'))
    const stranger = two.cluster.claims.claim(claimOf('a.example'), () => true)
    await expect(stranger).rejects.toThrow(ClaimHeldError)
    // In 5 s it would have asked 25 times.
    expect(asked.length).toBeLessThan(5)
    const mine = claimOf('a.example', { deviceId: 'mine' })
    expect(await two.cluster.claims.claim(mine, () => true)).toBe('one')
    expect(two.owns(mine)).toBe(true)
    // The name may come by the database before the word of the other node.
    await eventually(() => expect(said).toEqual(['kept', 'given']))
  })

  it('says for which node it has given a name up, until that has it', async () => {
    const { one, two } = await startTwo()
    const claim = claimOf('a.example')
    await one.cluster.claims.claim(claim)
    await one.cluster.claims.release(claim, 'two')
    await eventually(() => {
      expect(two.cluster.table.coming('https', 'a.example', null)?.nodeId).toBe('two')
      expect(one.cluster.table.find('https', 'a.example')?.nodeId).toBe('two')
    })
    const next = claimOf('a.example')
    await two.cluster.claims.claim(next)
    await two.cluster.claims.release(next)
    await eventually(() => {
      expect(two.cluster.table.coming('https', 'a.example', null)).toBeUndefined()
      expect(one.cluster.table.find('https', 'a.example')).toBeUndefined()
    })
  })

  it('takes a name from a node that says nothing for the process that has moved, and no other', async () => {
    const { one, two } = await startTwo()
    const process = { deviceId: 'cam', instance: 'process-1' }
    const own = claimOf('a.example', { ...process, clientId: 'ts_1', generation: 5 })
    const kept = claimOf('b.example', { ...process, generation: 5 })
    const known = claimOf('c.example', { deviceId: null, clientId: 'ts_1', generation: 5 })
    for (const claim of [own, kept, known]) await one.cluster.claims.claim(claim)
    one.kill()
    const mayTake = () => true
    const others = [
      claimOf('a.example', { ...process, instance: 'process-2', generation: 6 }),
      claimOf('a.example', { ...process, deviceId: 'door', generation: 6 }),
      claimOf('a.example', { ...process, ownerId: 'bot_2', generation: 6 }),
      claimOf('b.example', { ...process, generation: 4 }),
    ]
    const refused = others.map((claim) =>
      expect(two.cluster.claims.claim(claim, mayTake)).rejects.toThrow(ClaimHeldError),
    )
    await Promise.all(refused)
    const next = claimOf('a.example', { ...process, generation: 6 })
    await two.cluster.claims.claim(next, mayTake)
    const back = claimOf('c.example', { deviceId: null, clientId: 'ts_1', generation: 6 })
    await two.cluster.claims.claim(back, mayTake)
    expect([next, back, others[3]].map((claim) => claim && two.owns(claim))).toEqual([
      true,
      true,
      false,
    ])
  })

  it('hears that its device has taken a name along', async () => {
    const { one, two } = await startTwo({ give: () => Promise.resolve(false) })
    const process = { deviceId: 'cam', instance: 'process-1' }
    const own = claimOf('a.example', { ...process, generation: 5 })
    await one.cluster.claims.claim(own)
    await two.cluster.claims.claim(claimOf('a.example', { ...process, generation: 6 }), () => true)
    await eventually(() => expect(one.lost).toEqual(['a.example']))
    expect(one.owns(own)).toBe(false)
  })

  // Leases as short as these may end for a moment on a busy machine: claims are asked for again.
  it('gives up a node that is silent, and its names with it', async () => {
    const { one, two } = await startTwo({ timings: FAST })
    const claim = claimOf('a.example')
    await eventually(() => one.cluster.claims.claim(claim))
    one.pause()
    await eventually(() => expect(two.cluster.nodes.find('one')?.standing).toBe('lost'))
    expect(two.cluster.table.get(claim.key)).toBeUndefined()
    const taken = claimOf('a.example')
    await eventually(() => two.cluster.claims.claim(taken))
    one.resume()
    // Before it has heard of anything.
    expect(one.owns(claim)).toBe(false)
    expect(one.cluster.claims.ownershipOfDevice(claim.key)).toBe('unknown')
    await eventually(() => expect(one.lost).toEqual(['a.example']))
    expect(one.cluster.lease.epoch).toBeGreaterThan(1)
    await eventually(() => expect(two.owns(taken)).toBe(true))
  })

  it('is stopped for long, and serves nobody before it has looked, or cannot', async () => {
    const settled: string[] = []
    let stopped: TestNode | undefined
    const { one } = await startTwo({
      timings: FAST,
      onSettled: () => void settled.push(stopped?.cluster.lease.state ?? ''),
    })
    stopped = one
    const device = claimOf('a.example')
    const counter = claimOf('c.example', { kind: 'cloud' })
    const { claims } = one.cluster
    for (const claim of [device, counter]) await claims.claim(claim)
    const ownerships = () => [
      claims.ownershipOfDevice(device.key),
      claims.ownershipOfCounter(counter.key),
    ]
    await eventually(() => expect(ownerships()).toEqual(['owned', 'owned']))
    one.pause()
    const since = performance.now()
    await eventually(() => expect(performance.now() - since).toBeGreaterThan(FAST.leaseMs))
    expect(ownerships()).toEqual(['unknown', 'unknown'])
    // It wakes, and reaches nobody: the tries that began before that say nothing.
    one.proxy.refuse()
    one.proxy.cut()
    one.resume()
    expect(ownerships()).toEqual(['unknown', 'unknown'])
    await eventually(() => expect(ownerships()).toEqual(['owned', 'foreign']))
    one.proxy.heal()
    await eventually(() => expect(ownerships()).toEqual(['owned', 'owned']))
    await eventually(() => expect(settled).toContain('overdue'))
  })

  it('has its names again that nobody took meanwhile', async () => {
    const { one, two } = await startTwo({ timings: FAST })
    const claim = claimOf('a.example')
    await eventually(() => one.cluster.claims.claim(claim))
    one.pause()
    await eventually(() => expect(two.cluster.nodes.find('one')?.standing).toBe('lost'))
    one.resume()
    await eventually(() => expect(one.owns(claim)).toBe(true))
    expect(one.lost).toEqual([])
  })

  it('takes no new names without the database; devices that are linked are served on', async () => {
    const { one, two } = await startTwo({ timings: FAST })
    const device = claimOf('a.example')
    const cloud = claimOf('c.example', { kind: 'cloud' })
    const { claims, lease } = one.cluster
    await eventually(() => claims.claim(device))
    await eventually(() => claims.claim(cloud))
    one.proxy.refuse()
    one.proxy.cut()
    await eventually(() => expect(lease.state).toBe('overdue'))
    await expect(claims.claim(claimOf('b.example'))).rejects.toThrow('the lease has expired')
    expect(claims.ownershipOfDevice(device.key)).toBe('owned')
    expect(claims.ownershipOfCounter(cloud.key)).toBe('foreign')
    one.proxy.heal()
    await eventually(() => expect(claims.ownershipOfCounter(cloud.key)).toBe('owned'))
    expect(two.owns(device)).toBe(false)
  })

  it('counts a wall clock that jumps as time in which the machine slept', async () => {
    const { one } = await startTwo()
    const claim = claimOf('a.example')
    await one.cluster.claims.claim(claim)
    one.clock.stepWall(900)
    expect(one.owns(claim)).toBe(true)
    one.clock.stepWall(-3_600_000)
    expect(one.owns(claim)).toBe(false)
    await eventually(() => expect(one.owns(claim)).toBe(true))
    expect(one.cluster.lease.epoch).toBe(1)
  })

  it('has another epoch after a restart, without the names of the last one', async () => {
    const { address, one, two } = await startTwo()
    await one.cluster.claims.claim(claimOf('a.example'))
    one.kill()
    const again = await startNode(address, 'one')
    expect(again.cluster.lease.epoch).toBe(2)
    await two.cluster.claims.claim(claimOf('a.example'))
  })

  it('has no names, and takes none, once it was given up and has not heard of that', async () => {
    // Nobody hears of anything by a beat.
    const { address, one, two } = await startTwo({ timings: { ...FAST, ...SLOW } })
    const session = await PostgresSession.open({ server: one.server, name: 'test' })
    onTestFinished(() => session.close())
    await session.query("UPDATE nodes SET epoch = epoch + 1 WHERE id = 'one'")
    expect(one.cluster.lease.state).toBe('held')
    const claim = claimOf('a.example')
    await expect(one.cluster.claims.claim(claim)).rejects.toThrow('the lease has expired')
    expect(one.owns(claim)).toBe(false)
    // A newer process of it keeps what it has.
    const newer = await startNode(address, 'one', { timings: { ...FAST, ...SLOW } })
    await newer.cluster.claims.claim(claim)
    await expect(one.cluster.claims.claim(claim)).rejects.toThrow('the lease has expired')
    await expect(two.cluster.claims.claim(claimOf('a.example'))).rejects.toThrow(ClaimHeldError)
  })

  it('leaves the node to a newer process, for good', async () => {
    const { address, one } = await startTwo()
    const claim = claimOf('a.example')
    await one.cluster.claims.claim(claim)
    const newer = await startNode(address, 'one')
    await eventually(() => expect(one.isReplaced).toBe(true))
    expect(one.cluster.lease.state).toBe('replaced')
    expect(one.cluster.claims.ownershipOfDevice(claim.key)).toBe('foreign')
    expect(newer.cluster.lease).toMatchObject({ state: 'held', epoch: 2 })
  })

  it('gives up what the database has of a claim that was thought to have failed', async () => {
    const { one, two } = await startTwo()
    const late = claimOf('a.example')
    await postgresOf(
      one,
      `SELECT change_claims('one', 1, 'mark', '${JSON.stringify([
        { do: 'claim', ...late.key, facts: late.facts },
      ])}')`,
    )
    const wanted = claimOf('a.example')
    await two.cluster.claims.claim(wanted, () => true)
    expect(two.owns(wanted)).toBe(true)
  })

  it('gives up what came of a claim that had no answer', async () => {
    const { one, two } = await startTwo()
    one.proxy.blackHole('down')
    const claiming = one.cluster.claims.claim(claimOf('a.example'))
    const outcome = expect(claiming).rejects.toMatchObject({ name: 'DatabaseError' })
    const nodeInDatabase = async () => (await postgresOf(two, 'SELECT node FROM claims'))[0]?.node
    await eventually(async () => expect(await nodeInDatabase()).toBe('one'))
    one.proxy.refuse()
    one.proxy.cut()
    await outcome
    one.proxy.heal()
    await eventually(async () => expect(await nodeInDatabase()).toBe(null))
    await two.cluster.claims.claim(claimOf('a.example'))
  })

  it('gives all up when it leaves, and tells when it drains', async () => {
    const { one, two } = await startTwo()
    await one.cluster.claims.claim(claimOf('a.example'))
    await one.cluster.lease.stand('draining')
    await eventually(() => expect(two.cluster.nodes.find('one')?.standing).toBe('draining'))
    expect(two.cluster.table.find('https', 'a.example')?.nodeId).toBe('one')
    await one.stop()
    await two.cluster.claims.claim(claimOf('a.example'))
    await eventually(() => expect(two.cluster.nodes.find('one')?.standing).toBe('left'))
  })

  it('refuses a node that does not fit', async () => {
    const { address } = await startTwo()
    const other = (change: Parameters<typeof nodeFacts>[0]) =>
      startNode(address, 'three', { facts: nodeFacts({ name: 'three', ...change }) })
    await expect(other({ ports: { http: 80, https: 8443 } })).rejects.toThrow(
      'The port for https is 8443 here and 443 at the node',
    )
    await expect(other({ ports: { http: 80, https: 443, dns: 53 } })).rejects.toThrow('is 53 here')
    await expect(other({ protocol: 3, oldestProtocol: 2 })).rejects.toThrow('Upgrade the older one')
    await other({ protocol: 3, oldestProtocol: 1 })
  })

  it('claims its names again when the database is an older copy', async () => {
    const { one, two } = await startTwo()
    const claim = claimOf('a.example')
    await one.cluster.claims.claim(claimOf('before.example'))
    await one.cluster.claims.claim(claim)
    await eventually(() => expect(two.cluster.table.size).toBe(2))
    // As before the second claim, with a change of its own since.
    await postgresOf(one, "DELETE FROM claims WHERE host = 'a.example'")
    await postgresOf(one, "UPDATE claim_changes SET mark = 'another' WHERE number = 2")
    await eventually(async () => {
      const rows = await postgresOf(one, "SELECT node FROM claims WHERE host = 'a.example'")
      expect(rows).toEqual([{ node: 'one' }])
    })
    await eventually(() => expect(one.owns(claim)).toBe(true))
    await eventually(() => expect(two.cluster.table.size).toBe(2))
  })

  it('claims a name again that an older copy of the database lacks, and no look had shown', async () => {
    let isHeard = true
    const address = await postgres.database()
    const one = await startNode(address, 'one', {
      timings: { ...FAST, leaseMs: 60_000 },
      // Between two looks it waits by this clock, and writes without one.
      onNodes: () => isHeard || one.clock.pause(),
    })
    await one.cluster.claims.claim(claimOf('before.example'))
    isHeard = false
    await eventually(() => expect(one.clock.isPaused).toBe(true))
    await one.cluster.claims.claim(claimOf('a.example'))
    await postgresOf(one, "DELETE FROM claims WHERE host = 'a.example'")
    await postgresOf(one, 'DELETE FROM claim_changes WHERE number = 2')
    await postgresOf(one, 'UPDATE claim_head SET number = 1')
    isHeard = true
    one.clock.resume()
    await eventually(async () => {
      const rows = await postgresOf(one, 'SELECT host, node FROM claims ORDER BY host')
      expect(rows).toEqual([
        { host: 'a.example', node: 'one' },
        { host: 'before.example', node: 'one' },
      ])
    })
  })

  it('gives up what an older copy of the database says of it, and it has no more', async () => {
    const { one, two } = await startTwo()
    const gone = claimOf('gone.example')
    await one.cluster.claims.claim(gone)
    await one.cluster.claims.claim(claimOf('kept.example'))
    await one.cluster.claims.release(gone)
    await eventually(() => expect(two.cluster.table.size).toBe(1))
    await postgresOf(one, "UPDATE claims SET node = 'one' WHERE host = 'gone.example'")
    await postgresOf(one, "UPDATE claim_changes SET mark = 'another' WHERE number = 3")
    await eventually(async () => {
      const rows = await postgresOf(one, 'SELECT host, node FROM claims ORDER BY host')
      expect(rows).toEqual([
        { host: 'gone.example', node: null },
        { host: 'kept.example', node: 'one' },
      ])
    })
    await eventually(() => expect(two.cluster.table.find('https', 'gone.example')).toBeUndefined())
    expect(two.cluster.table.find('https', 'kept.example')?.nodeId).toBe('one')
  })

  it('goes on where an older copy of the database knows the process before it', async () => {
    const { address, one, two } = await startTwo()
    const earlier = { ...nodeFacts({ name: 'one' }), instance: 'before' }
    await one.stop()
    const again = await startNode(address, 'one', { timings: { ...FAST, leaseMs: 60_000 } })
    const claim = claimOf('a.example')
    await again.cluster.claims.claim(claim)
    await postgresOf(two, 'DELETE FROM claims')
    const copy = `UPDATE nodes SET epoch = 1, standing = 'serving', facts = '${JSON.stringify(earlier)}'`
    await postgresOf(two, `${copy} WHERE id = 'one'`)
    await postgresOf(two, "UPDATE claim_changes SET mark = 'another'")
    await eventually(async () => {
      const rows = await postgresOf(two, "SELECT node FROM claims WHERE host = 'a.example'")
      expect(rows).toEqual([{ node: 'one' }])
    })
    await eventually(() => expect(again.owns(claim)).toBe(true))
    expect(again.isReplaced).toBe(false)
  })

  it('reads everything anew when it is far behind, and keeps no traces for ever', async () => {
    const { one, two } = await startTwo()
    two.proxy.freeze()
    await postgresOf(one, 'UPDATE claim_head SET number = 998')
    for (const host of ['a.example', 'b.example']) {
      const claim = claimOf(host)
      await one.cluster.claims.claim(claim)
      await one.cluster.claims.release(claim)
    }
    await one.cluster.claims.claim(claimOf('c.example'))
    two.proxy.thaw()
    await eventually(() => expect(two.cluster.table.find('https', 'c.example')).toBeDefined())
    await postgresOf(one, 'UPDATE claim_head SET number = 2999')
    await one.cluster.claims.claim(claimOf('d.example'))
    expect(await postgresOf(one, 'SELECT host FROM claims ORDER BY host')).toEqual([
      { host: 'c.example' },
      { host: 'd.example' },
    ])
    await eventually(() => expect(two.cluster.table.size).toBe(2))
  })

  it.each([
    ['was given up', "standing = 'lost'"],
    ['said goodbye', "standing = 'left'"],
    ['came back at once as another process', "standing = 'serving'"],
  ])('keeps the names of one that %s for an hour when it clears up', async (_what, standing) => {
    const { one, two } = await startTwo()
    // It was there for longer than that.
    await postgresOf(one, 'UPDATE nodes SET since = since - 7200000')
    const left = claimOf('left.example')
    await one.cluster.claims.claim(left)
    await two.cluster.claims.claim(claimOf('cam.example'))
    two.kill()
    await postgresOf(one, `UPDATE nodes SET epoch = epoch + 1, ${standing} WHERE id = 'two'`)
    const nodeOfCam = async (number: number) => {
      await postgresOf(one, `UPDATE claim_head SET number = ${number}`)
      await one.cluster.claims.claim(claimOf(`n${number}.example`))
      const [row] = await postgresOf(one, "SELECT node FROM claims WHERE host = 'cam.example'")
      return row?.node
    }
    expect(await nodeOfCam(999)).toBe('two')
    await postgresOf(one, "UPDATE nodes SET since = since - 3590000 WHERE id = 'two'")
    expect(await nodeOfCam(1_999)).toBe('two')
    await postgresOf(one, "UPDATE nodes SET since = since - 20000 WHERE id = 'two'")
    expect(await nodeOfCam(2_999)).toBe(null)
    expect(one.owns(left)).toBe(true)
  })

  it('writes less than twice a second while nothing happens', async () => {
    expect(1_000 / FAST.beatMs).toBeGreaterThan(2)
    expect(1_000 / LEASE_TIMINGS.beatMs).toBeLessThan(2)
    const { one, two } = await startTwo()
    const [before] = await postgresOf(one, 'SELECT number FROM claim_head')
    const beat = two.cluster.nodes.find('one')?.beat ?? 0
    await eventually(() => {
      expect(two.cluster.nodes.find('one')?.beat).toBeGreaterThan(beat + 3)
    })
    expect(await postgresOf(one, 'SELECT number FROM claim_head')).toEqual([before])
  })

  it(
    'has no moment in which a name has two owners',
    async () => {
      // It crashes its database, which has to keep what it acknowledged.
      const postgres = await TestPostgres.start()
      onTestFinished(() => postgres.remove())
      const found = await checkClaims({
        postgres,
        address: await postgres.database(),
        nodes: 3,
        names: 12,
        ms: CHECK_S * 1_000,
        seed: Date.now() % 100_000,
      })
      expect(found.doubles).toEqual([])
    },
    180_000 + CHECK_S * 2_000,
  )

  /** A statement of the database that a node uses. */
  async function postgresOf(node: TestNode, sql: string) {
    const session = await PostgresSession.open({ server: node.server, name: 'test' })
    try {
      return await session.query(sql)
    } finally {
      session.close()
    }
  }
})
