import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { WantedName } from '../../../src/gateway/access/name-claims.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import {
  deviceMetadata,
  forward,
  startDeviceService,
  visit as visitSdk,
} from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'

const HOST = 'few.site.test'
const CAPACITY = 20
const metadata = deviceMetadata('process')

const policyOf = (...more: object[]) => {
  const config = { name: 'few', algorithm: 'sliding_window', rate: '3600s' }
  const limit = { ...config, capacity: CAPACITY, bucket_key: ['req.host'] }
  const actions = [{ type: 'rate-limit', config: limit }, ...more]
  return JSON.stringify({ on_http_request: [{ actions }] })
}

const visit = async (at: RunningGateway, host = HOST) =>
  (await visitSdk(at, { host, address: at.addresses.http.host })).status
const nodeOf = ({ gateway }: RunningGateway) => nodeIn(gateway)

/** Lets in as many as a limit admits, but for some, at each of these. */
async function useUp(gateways: readonly RunningGateway[], left: number, host = HOST) {
  for (const at of gateways) await eventually(async () => expect(await visit(at, host)).toBe(200))
  for (let n = gateways.length; n < CAPACITY - left; n += 1) {
    expect(await visit(gateways[n % gateways.length] as RunningGateway, host)).toBe(200)
  }
}

describe.skipIf(!hasPostgres)('what a limit has counted', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Three, with a proxy between the first one and the database. */
  const start = async () => {
    const address = await postgres.database()
    const cluster = GatewayCluster.open(address)
    const toPostgres = await ChaosProxy.start(address)
    // What waits for something does so for longer than a busy machine takes.
    const one = await cluster.start({ through: toPostgres.address, drainMs: 60_000 })
    const { authtoken } = one
    const two = await cluster.start({ authtoken })
    const three = await cluster.start({ authtoken })
    const all = [one, two, three] as const
    for (const at of all) {
      for (const other of all) {
        const id = nodeOf(other)?.nodeId ?? ''
        if (at !== other) {
          await eventually(() => expect(nodeOf(at)?.links.find(id)?.session).toBeDefined())
        }
      }
    }
    return { one, two, three, all, toPostgres }
  }
  const serve = async (at: RunningGateway) => {
    const service = await startDeviceService((_request, response) => void response.end('few'))
    const session = await connectSdk(at, { metadata })
    await forward(session, service, { domain: HOST, policy: policyOf() })
    return session
  }

  it('goes along with a name whose home hears late that it is wanted', async () => {
    const { one, two, three, toPostgres } = await start()
    await serve(one)
    await useUp([one, three], 1)
    toPostgres.freeze()
    await serve(two)
    expect([await visit(two), await visit(three), await visit(two)]).toEqual([200, 429, 429])
    toPostgres.thaw()
    await eventually(async () => expect(await visit(one)).toBe(429))
  })

  it('goes along to a third gateway when the second could not open the name', async () => {
    const { one, two, three } = await start()
    await serve(one)
    await useUp([one, three], 1)
    const endpoint = [...one.gateway.parts.registry.all()].find(({ host }) => host === HOST)
    const before = one.gateway.parts.sessions.find(
      endpoint?.type === 'agent' ? endpoint.sessionId : '',
    )
    if (!endpoint || !before) throw new Error('it is not online')
    const { clientId, identity, startedAt } = before
    const wanted: WantedName = {
      ...endpoint,
      ...{ member: '', isShared: false, endsTls: false },
      policy: two.gateway.parts.policies.compile(policyOf(), {
        ...endpoint,
        credentialId: identity.credentialId,
      }),
      session: { id: 'ts_2', clientId, identity, startedAt: startedAt + 1 },
    }
    const opening = nodeOf(two)?.names.open(wanted, () => {
      throw new Error('the session is over')
    })
    await expect(opening).rejects.toThrow('the session is over')
    await serve(three)
    expect([await visit(three), await visit(three)]).toEqual([200, 429])
  })

  it('is waited for by a gateway that is stopped, until a device with one session is at another', async () => {
    const { one, two, three } = await start()
    const service = await startDeviceService((_request, response) => void response.end('few'))
    // No process of ours: it has one session, which ends before the next begins.
    await forward(await connectSdk(one), service, { domain: HOST, policy: policyOf() })
    await useUp([one, three], 1)
    const stopping = one.gateway.stop()
    const left = { agents: 0, endpoints: 1, requests: 0 }
    await eventually(() => expect(one.gateway.parts.drain.progress?.left).toEqual(left))
    await forward(await connectSdk(two), service, { domain: HOST, policy: policyOf() })
    expect([await visit(two), await visit(three), await visit(two)]).toEqual([200, 429, 429])
    await stopping
  })

  it('is exact while a gateway that is stopped gives its names away under visitors', async () => {
    const { one, two, three, all } = await start()
    const names = [HOST, 'cloud.site.test']
    const { cloudEndpoints } = one.gateway.parts
    const answer = { type: 'custom-response', config: { status_code: 200 } }
    await cloudEndpoints.create(
      { url: 'https://cloud.site.test', trafficPolicy: policyOf(answer) },
      { isGranted: true },
    )
    await serve(one)
    for (const host of names) await useUp(all, 10, host)
    const admitted = new Map<string, number>()
    const during = async (gateways: readonly RunningGateway[], work: () => Promise<unknown>) => {
      let isOver = false
      const visitors = names.flatMap((host) =>
        gateways.map(async (at) => {
          while (!isOver) {
            if ((await visit(at, host)) === 200) admitted.set(host, (admitted.get(host) ?? 0) + 1)
          }
        }),
      )
      await work()
      isOver = true
      await Promise.all(visitors)
    }
    await during([two, three], () => Promise.all([one.gateway.stop(), serve(two)]))
    await during([three], () => Promise.all([two.gateway.stop(), serve(three)]))
    expect(Object.fromEntries(admitted)).toEqual({ [HOST]: 10, 'cloud.site.test': 10 })
  })
})
