import type { ServerResponse } from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'
import type { Session } from '@ngrok/ngrok'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Gateway } from '../../../src/gateway/gateway.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import {
  deviceMetadata,
  forward,
  startDeviceService,
  visit as visitSdk,
} from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { PausableClock } from '../../helpers/pausable-clock.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { bind, connectSdk, type RunningGateway, sdkCode } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'

const API = { host: '127.0.0.1', port: 0 }
const HOST = 'cam.site.test'

const visit = (at: RunningGateway, host = HOST) =>
  visitSdk(at, { host, address: at.addresses.http.host })

/** A service that answers with a word, and holds `/slow` until it is told to go on. */
async function serve(session: Session, word: string, domain = HOST) {
  const slow = new Set<ServerResponse>()
  const service = await startDeviceService((request, response) => {
    if (request.url !== '/slow') return void response.end(word)
    response.write(`${word}, `)
    slow.add(response)
  })
  const listener = await forward(session, service, { domain })
  return { listener, slow }
}

/** Visitors at gateways, one after another at each, and each outcome that they had. */
function keepVisiting(gateways: readonly RunningGateway[], host = HOST) {
  const outcomes = new Set<string>()
  let isOver = false
  let served = 0
  const all = Promise.all(
    gateways.map(async (at) => {
      while (!isOver) {
        const { status, text } = await visit(at, host)
        outcomes.add(`${status} ${text}`)
        served += 1
        await pause(5)
      }
    }),
  )
  // A test that failed before does not stop them.
  all.catch(() => {})
  return {
    /** Resolves when so many more were answered. */
    more: async (count: number) => {
      const enough = served + count
      await eventually(() => expect(served).toBeGreaterThanOrEqual(enough))
    },
    stop: async () => {
      isOver = true
      await all
      return [...outcomes]
    },
  }
}

const readiness = async ({ addresses: { api } }: RunningGateway) =>
  (await fetch(`http://127.0.0.1:${api?.port}/readyz`)).status
const partsOf = ({ gateway }: { gateway: Gateway }) => gateway.parts
const leaseOf = (at: RunningGateway) => nodeIn(at.gateway)?.cluster.lease.state
const endpointAt = (at: RunningGateway) =>
  [...partsOf(at).registry.all()].find(({ host }) => host === HOST)?.id

describe.skipIf(!hasPostgres)('two gateways of a site', () => {
  let postgres: TestPostgres
  let cluster: GatewayCluster
  let one: RunningGateway
  let two: RunningGateway
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** With a proxy between each and the database. */
  const start = async (leaseMs?: number, ofFirst: { clock?: PausableClock } = {}) => {
    const address = await postgres.database()
    const ways = [await ChaosProxy.start(address), await ChaosProxy.start(address)] as const
    cluster = GatewayCluster.open(address, leaseMs)
    one = await cluster.start({ ...ofFirst, apiListen: API, through: ways[0].address })
    const { authtoken } = one
    two = await cluster.start({ authtoken, apiListen: API, through: ways[1].address })
    return { ways, database: address.database }
  }
  const areServed = (text: string) =>
    eventually(async () => {
      for (const at of [one, two]) expect(await visit(at)).toMatchObject({ status: 200, text })
    })

  it('serve, take names and keep their places while PostgreSQL is slow', async () => {
    const { ways } = await start(10_000)
    await serve(await connectSdk(one), 'cam')
    await areServed('cam')
    for (const way of ways) way.delay(150)
    const visitors = keepVisiting([one, two])
    await bind(await connectSdk(two), 'slow.site.test')
    await partsOf(two).issuer.createBotUser({ name: 'made slowly' })
    await visitors.more(20)
    expect([leaseOf(one), leaseOf(two)]).toEqual(['held', 'held'])
    expect(await visitors.stop()).toEqual(['200 cam'])
  })

  it('go on where they were when PostgreSQL has crashed, with all that was acknowledged', async () => {
    await start()
    await serve(await connectSdk(one), 'cam')
    await areServed('cam')
    const endpoint = endpointAt(one)
    const visitors = keepVisiting([one, two])
    const made = await partsOf(one).issuer.createBotUser({ name: 'before' })
    await postgres.crash()
    await visitors.more(20)
    await postgres.start()
    await eventually(() => partsOf(two).issuer.createBotUser({ name: 'after' }))
    const rows = await eventually(() => {
      const { items } = { items: partsOf(two).botUsers.page({ limit: 10 }) }
      expect(items.some(({ name }) => name === 'after')).toBe(true)
      return items
    })
    expect(rows).toContainEqual(made)
    expect(await visitors.stop()).toEqual(['200 cam'])
    expect(endpointAt(one)).toBe(endpoint)
    expect(endpoint).toBeDefined()
  })

  it('take the records of an older copy that PostgreSQL fails over to, and claim their names there', async () => {
    const { database } = await start()
    const { issuer } = partsOf(one)
    const kept = await issuer.createBotUser({ name: 'in the copy' })
    const alone = async (sql: readonly string[]) => {
      await postgres.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`)
      await postgres.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${database}'`,
      )
      await eventually(async () => {
        for (const statement of sql) await postgres.query(statement)
      })
    }
    await alone([`CREATE DATABASE ${database}_copy TEMPLATE ${database}`])
    await postgres.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`)
    const gone = await eventually(() => issuer.createBotUser({ name: 'gone with it' }))
    const session = await connectSdk(one)
    await serve(session, 'cam')
    await areServed('cam')
    const visitors = keepVisiting([one, two])
    await alone([
      `ALTER DATABASE ${database} RENAME TO ${database}_lost`,
      `ALTER DATABASE ${database}_copy RENAME TO ${database}`,
    ])
    for (const at of [one, two]) {
      await eventually(() => {
        const ids = partsOf(at)
          .botUsers.page({ limit: 10 })
          .map(({ id }) => id)
        expect(ids).toContain(kept.id)
        expect(ids).not.toContain(gone.id)
      })
    }
    const claimed = `SELECT node FROM claims WHERE host = '${HOST}'`
    await eventually(async () => {
      expect(await postgres.query(claimed, database)).toEqual([
        { node: nodeIn(one.gateway)?.nodeId },
      ])
    })
    // Once it is claimed again nobody else gets it; whoever asks sooner would.
    expect(await sdkCode(bind(await connectSdk(two), HOST))).toBe('ERR_NGROK_334')
    await visitors.more(20)
    expect(await visitors.stop()).toEqual(['200 cam'])
    expect(one.logText()).toContain('older copy')
  })

  it('have a name at one of them after one stood still, and its visitors go there', async () => {
    const clock = new PausableClock()
    const { ways } = await start(6_000, { clock })
    await serve(await connectSdk(one, { metadata: deviceMetadata('process') }), 'before')
    await areServed('before')
    const nodeId = nodeIn(one.gateway)?.nodeId ?? ''
    clock.pause()
    ways[0].freeze()
    // As one that has not heard from it for a lease.
    await eventually(() => expect(two.gateway.parts.others.find(nodeId)?.standing).toBe('lost'))
    await serve(await connectSdk(two, { metadata: deviceMetadata('process') }), 'after')
    const waiting = visit(one)
    await eventually(() => expect(nodeIn(one.gateway)?.routes.waiting).toBe(1))
    clock.resume()
    ways[0].thaw()
    expect(await waiting).toMatchObject({ status: 200, text: 'after' })
    await areServed('after')
  })

  it('hold visitors while they do not reach each other, and give the name no second home', async () => {
    cluster = GatewayCluster.open(await postgres.database())
    const place = async () => {
      const listen = { host: '127.0.0.1', port: lastingAddress().port }
      const way = await ChaosProxy.start(listen)
      return { way, peer: { listen, address: way.address } }
    }
    const places = [await place(), await place()] as const
    one = await cluster.start({ peer: places[0].peer })
    two = await cluster.start({ peer: places[1].peer, authtoken: one.authtoken })
    await serve(await connectSdk(one), 'cam')
    await areServed('cam')
    for (const { way } of places) way.blackHole('both')
    const refused = sdkCode(bind(await connectSdk(two), HOST))
    const node = nodeIn(two.gateway)
    await eventually(() => {
      expect(node?.links.find(nodeIn(one.gateway)?.nodeId ?? '')?.session).toBeUndefined()
    })
    const waiting = visit(two)
    await eventually(() => expect(node?.routes.waiting).toBe(1))
    expect(await refused).toBe('ERR_NGROK_334')
    expect(await visit(one)).toMatchObject({ status: 200, text: 'cam' })
    for (const { way } of places) way.heal()
    expect(await waiting).toMatchObject({ status: 200, text: 'cam' })
  })

  it('serve the devices of the one that does not reach PostgreSQL, which says so and takes no names', async () => {
    // Nobody judges others before it has been here for the length of a lease.
    const { ways } = await start(15_000)
    await serve(await connectSdk(one), 'cam')
    await areServed('cam')
    ways[0].blackHole('both')
    const visitors = keepVisiting([one, two])
    const here = await connectSdk(one)
    expect(await sdkCode(bind(here, 'new.site.test'))).toBe('ERR_NGROK_803')
    await bind(await connectSdk(two), 'other.site.test')
    await eventually(async () => expect(await readiness(one)).toBe(503))
    expect(await readiness(two)).toBe(200)
    ways[0].heal()
    await eventually(() => bind(here, 'new.site.test'))
    await eventually(async () => expect(await readiness(one)).toBe(200))
    await visitors.more(20)
    expect(await visitors.stop()).toEqual(['200 cam'])
  })

  it('are not ready with a wrong clock, and say so, until it is right', async () => {
    const clock = new PausableClock()
    clock.stepWall(-3_600_000)
    await start(undefined, { clock })
    const reasonAt = async ({ addresses: { api } }: RunningGateway) =>
      (await fetch(`http://127.0.0.1:${api?.port}/readyz`)).text()
    await eventually(async () => expect(await readiness(one)).toBe(503))
    expect(await reasonAt(one)).toContain('The clock of this machine is wrong')
    expect(await readiness(two)).toBe(200)
    expect(one.logText()).toContain('the clock of this machine is wrong')
    clock.stepWall(3_600_000)
    await eventually(async () => expect(await readiness(one)).toBe(200))
  })

  it('get one each of names that devices at both bind at once', async () => {
    await start()
    // A session binds one name after another.
    const names = Array.from({ length: 3 }, async (_, n) => {
      const sessions = await Promise.all([connectSdk(one), connectSdk(two)])
      const binds = sessions.map((session) => sdkCode(bind(session, `both${n}.site.test`)))
      expect((await Promise.all(binds)).toSorted()).toEqual(['ERR_NGROK_334', undefined])
    })
    await Promise.all(names)
  })

  it('are restarted one after the other under visitors and a download, and nobody notices', async () => {
    await start()
    const metadata = deviceMetadata('process')
    const first = await serve(await connectSdk(two, { metadata }), 'cam')
    await areServed('cam')
    const download = visitSdk(one, { host: HOST, address: one.addresses.http.host, path: '/slow' })
    await eventually(() => expect(first.slow.size).toBe(1))
    const before = keepVisiting([one])
    const stopping = two.gateway.stop()
    // As `device-agent` does when it is told to go.
    await serve(await connectSdk(one, { metadata }), 'cam')
    for (const response of first.slow) response.end('whole')
    expect(await download).toMatchObject({ status: 200, text: 'cam, whole' })
    await stopping
    await before.more(20)
    two = await cluster.start({ dataDir: two.dataDir, authtoken: one.authtoken })
    await areServed('cam')
    expect(await before.stop()).toEqual(['200 cam'])
    const after = keepVisiting([two])
    const ended = one.gateway.stop()
    await serve(await connectSdk(two, { metadata }), 'cam')
    await ended
    await after.more(20)
    expect(await after.stop()).toEqual(['200 cam'])
  })
})
