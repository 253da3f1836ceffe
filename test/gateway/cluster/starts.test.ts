import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { forward, startDeviceService, visit as visitSdk } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'

const HOST = 'cam.site.test'
/** Round trip to PostgreSQL in another building. */
const FAR_MS = 25

const visit = (at: RunningGateway, host = HOST) =>
  visitSdk(at, { host, address: at.addresses.http.host })

describe.skipIf(!hasPostgres)('a gateway of several that starts', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.start()
  })
  afterAll(() => postgres?.remove())

  /** Two gateways, each with its own way to PostgreSQL, and a device at the first one. */
  async function startTwo() {
    const address = await postgres.database()
    const ways = [await ChaosProxy.start(address), await ChaosProxy.start(address)] as const
    const cluster = GatewayCluster.open(address)
    const one = await cluster.start({ through: ways[0].address })
    const two = await cluster.start({ authtoken: one.authtoken, through: ways[1].address })
    const service = await startDeviceService((_, response) => void response.end('cam'))
    await forward(await connectSdk(one), service, { domain: HOST })
    await eventually(async () => expect((await visit(two)).status).toBe(200))
    const { http: httpListen, https: httpsListen } = two.addresses
    const same = { dataDir: two.dataDir, authtoken: one.authtoken, httpListen, httpsListen }
    const restart = () =>
      cluster.start({ ...same, through: ways[1].address, joins: false, provisions: false })
    return { one, two, ways, restart }
  }

  it('answers no visitor before it knows the names of the others', async () => {
    const { two, ways, restart } = await startTwo()
    await two.gateway.stop()
    ways[1].delay(FAR_MS)
    const outcomes = new Set<string>()
    let isOver = false
    const visiting = (async () => {
      while (!isOver) {
        // Nothing listens at first.
        const { status, text } = await visit(two).catch(() => ({ status: 0, text: '' }))
        if (status > 0) outcomes.add(`${status} ${text}`)
        await pause(1)
      }
    })()
    await restart()
    await eventually(() => expect(outcomes.size).toBeGreaterThan(0))
    isOver = true
    await visiting
    expect([...outcomes]).toEqual(['200 cam'])
  })

  it('learns the names from the others while PostgreSQL is away', async () => {
    const { two, ways, restart } = await startTwo()
    await two.gateway.stop()
    for (const way of ways) {
      way.refuse()
      way.cut()
    }
    const started = await restart()
    expect(await visit(started)).toMatchObject({ status: 200, text: 'cam' })
    expect(await visit(started, 'nobody.site.test')).toMatchObject({ status: 404 })
    expect(nodeIn(started.gateway)?.readiness.state).toBe('away')
  })

  it('refuses the data directory of another cluster, and uses no token', async () => {
    const [before, restored] = [await postgres.database(), await postgres.database()]
    const stale = await GatewayCluster.open(before).start()
    await stale.gateway.stop()
    const { dataDir } = stale
    const files = () => readdirSync(dataDir).sort()
    const identity = readFileSync(join(dataDir, 'node.json'), 'utf8')
    const refused = `${dataDir} belongs to another cluster than GATEWAY_DATABASE_URL.`
    // A database without a cluster is not its own either.
    const empty = GatewayCluster.open(restored).start({ dataDir })
    await expect(empty).rejects.toThrow(refused)
    const cluster = GatewayCluster.open(restored)
    const one = await cluster.start()
    const kept = files()
    const back = { dataDir, authtoken: one.authtoken }
    await expect(cluster.start(back)).rejects.toThrow(refused)
    expect(files()).toEqual([...kept, 'join-token'].sort())
    expect(readFileSync(join(dataDir, 'node.json'), 'utf8')).toBe(identity)
    const error = await cluster.start(back).catch((it: unknown) => it)
    const [, command = ''] = /(sudo sh -c '.*?')\./.exec(String(error)) ?? []
    execFileSync('sh', ['-c', command.replace('sudo ', '')])
    expect(files()).toEqual([])
    const two = await cluster.start(back)
    const linkToTwo = () => nodeIn(one.gateway)?.links.find(nodeIn(two.gateway)?.nodeId ?? '')
    await eventually(() => expect(linkToTwo()?.state.name).toBe('up'))
  })

  it('refuses no name for good while it can ask no other', async () => {
    const { one, two, ways, restart } = await startTwo()
    await two.gateway.stop()
    ways[1].refuse()
    ways[1].cut()
    await one.gateway.stop()
    const started = await restart()
    const refused = await visit(started)
    expect(refused.status).toBe(503)
    expect(refused.headers['retry-after']).toBeDefined()
    expect((await visit(started, 'nobody.site.test')).status).toBe(503)
    ways[1].heal()
    await eventually(async () =>
      expect((await visit(started, 'nobody.site.test')).status).toBe(404),
    )
  })
})
