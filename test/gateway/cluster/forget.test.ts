import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { PostgresSession } from '../../../src/gateway/cluster/postgres/postgres-session.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { bind, connectSdk } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const API = { host: '127.0.0.1', port: 0 }
const LEASE_MS = 6_000

describe.skipIf(!hasPostgres)('a gateway of several that is gone for good', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('is forgotten: nothing of it is accepted, and it comes back as another one alone', async () => {
    const address = await postgres.database()
    const proxy = await ChaosProxy.start(address)
    const cluster = GatewayCluster.open(address, LEASE_MS)
    const one = await cluster.start({ apiListen: API })
    const own = nodeIn(one.gateway)?.nodeId ?? ''
    const dataDir = temporaryFolder()
    // Whom the other one reaches by a proxy.
    const peer = { host: '127.0.0.2', port: lastingAddress().port }
    const way = await ChaosProxy.start(peer)
    const restarts: string[] = []
    const two = await cluster.start({
      ...{ authtoken: one.authtoken, through: proxy.address, dataDir },
      peer: { listen: peer, address: way.address },
      onRestartNeeded: (reason) => restarts.push(reason),
    })
    const id = nodeIn(two.gateway)?.nodeId ?? ''
    const { call } = await managed(one)
    await bind(await connectSdk(two), 'cam.site.test')
    const home = () => nodeIn(one.gateway)?.routes.match('cam.site.test', 'http')?.type
    const linkToOne = () => nodeIn(two.gateway)?.links.find(own)
    await eventually(() => {
      expect(home()).toBe('remote')
      expect(linkToOne()?.state.name).toBe('up')
    })
    expect(await call('DELETE', `/nodes/${id}`)).toMatchObject({
      status: 409,
      body: { error_code: 'ERR_NGROK_844', msg: expect.stringContaining('Stop it first') },
    })
    // It has lost PostgreSQL, and nothing else: it is given up, and serves on.
    proxy.refuse()
    proxy.cut()
    await eventually(async () => {
      const { body } = await call('GET', `/nodes/${id}`)
      expect(body).toMatchObject({ state: 'live', lease: { state: 'lost' } })
    })
    expect(await call('DELETE', `/nodes/${id}`)).toMatchObject({
      status: 409,
      body: { error_code: 'ERR_NGROK_844', msg: expect.stringContaining('still serves') },
    })
    // The other one reaches it no more, and has a link from there still.
    way.refuse()
    way.cut()
    await eventually(async () => {
      expect((await call('GET', `/nodes/${id}`)).body).toMatchObject({ state: 'gone' })
    })
    expect([home(), linkToOne()?.state.name]).toEqual(['remote', 'up'])
    const session = await PostgresSession.open({
      server: { address, password: address.password, passwordPath: undefined },
      name: 'test',
    })
    onTestFinished(() => session.close())
    const intents = () =>
      session.query("SELECT n FROM record_log WHERE tables = ARRAY['audit_intents']")
    expect(await intents()).toEqual([])
    expect((await call('DELETE', `/nodes/${id}`)).status).toBe(204)
    // Gateways are in no records: that one is to be forgotten is in the trail before it is.
    expect(await intents()).toHaveLength(1)
    const { nodes } = (await call('GET', '/nodes')).body
    expect(nodes.map((it: { id: string }) => it.id)).toEqual([own])
    expect(home()).toBeUndefined()
    expect((await call('DELETE', `/nodes/${id}`)).status).toBe(404)
    const { entries } = (await call('GET', '/audit')).body
    const deletions = entries.filter((it: { action: string }) => it.action === 'node.delete')
    expect(deletions.map(({ result }: { result: string }) => result)).toEqual([
      'not-found',
      'ok',
      'ERR_NGROK_844',
      'ERR_NGROK_844',
    ])
    expect(deletions[1]).toMatchObject({ target: { id } })
    await eventually(() => {
      expect(linkToOne()?.state).toMatchObject({ name: 'down', refusal: 'stranger' })
    })
    expect(one.logText()).toContain('"refusal":"stranger"')
    // It reaches PostgreSQL again.
    proxy.heal()
    await eventually(() => expect(restarts).toEqual(['this gateway was removed from the cluster']))
    expect(two.logText()).toContain('was removed from the cluster')
    await two.gateway.stop()
    const identity = readFileSync(join(dataDir, 'node.json'), 'utf8')
    const back = { authtoken: one.authtoken, dataDir }
    await expect(cluster.start({ ...back, joins: false })).rejects.toThrow(
      /was removed from the cluster on 20.*join token was already used/,
    )
    expect(readFileSync(join(dataDir, 'node.json'), 'utf8')).toBe(identity)
    const again = await cluster.start(back)
    const next = nodeIn(again.gateway)?.nodeId
    expect(next).not.toBe(id)
    expect(readFileSync(join(dataDir, 'node.json.forgotten'), 'utf8')).toBe(identity)
    await eventually(() => {
      expect(nodeIn(again.gateway)?.links.find(own)?.state.name).toBe('up')
    })
    await eventually(async () => {
      expect((await call('GET', `/nodes/${next}`)).body).toMatchObject({ state: 'live' })
    })
  })
})
