import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'

const POLICY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })

describe.skipIf(!hasPostgres)('quotas of an account at two gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('hold for what both make at the same moment', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const apiListen = { host: '127.0.0.1', port: 0 }
    const one = await cluster.start({ apiListen })
    const two = await cluster.start({ authtoken: one.authtoken, apiListen })
    const apis = [(await managed(one)).call, (await managed(two)).call]
    const [call] = apis as [(typeof apis)[0]]
    const { body: user } = await call('POST', '/bot_users', { name: 'press' })
    const bytes = Buffer.byteLength(POLICY)
    const quotas = { domains: 3, credentials: 3, keys: 3, webhooks: 3, cloud_endpoints: 5 }
    const change = { quotas: { ...quotas, policy_bytes: 3 * bytes + 1 } }
    expect((await call('PATCH', `/bot_users/${user.id}`, change)).status).toBe(200)
    await expect
      .poll(async () => (await apis[1]?.('GET', `/bot_users/${user.id}`))?.body.quotas.domains)
      .toBe(3)
    const kinds: [string, (n: number) => object][] = [
      ['/reserved_domains', (n) => ({ domain: `d${n}.quota.test` })],
      ['/credentials', (n) => ({ description: `t${n}` })],
      ['/api_keys', (n) => ({ description: `k${n}` })],
      ['/webhook_endpoints', (n) => ({ url: `https://h${n}.test` })],
      // Its bytes of policies are fewer than its endpoints.
      ['/endpoints', (n) => ({ url: `https://e${n}.internal`, traffic_policy: POLICY })],
    ]
    for (const [path, body] of kinds) {
      const answers = await Promise.all(
        Array.from({ length: 10 }, (_, n) =>
          apis[n % 2]?.('POST', path, { ...body(n), owner_id: user.id }),
        ),
      )
      const made = answers.filter((it) => it?.status === 201)
      const refused = answers.filter((it) => it?.body.error_code === 'ERR_NGROK_18021')
      expect([path, made.length, refused.length]).toEqual([path, 3, 7])
    }
  })
})
