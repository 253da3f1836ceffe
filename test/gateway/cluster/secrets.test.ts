import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SECRETS_KEY } from '../../../src/gateway/access/secret-seal.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import type { RunningGateway } from '../../helpers/running-gateway.ts'

const POLICY = JSON.stringify({
  on_http_request: [
    {
      actions: [
        {
          type: 'custom-response',
          config: { status_code: 200, body: `\${secrets.get('site', 'key')}` },
        },
      ],
    },
  ],
})

describe.skipIf(!hasPostgres)('secrets at two gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('are sealed with one key, and change at both', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const apiListen = { host: '127.0.0.1', port: 0 }
    const one = await cluster.start({ apiListen })
    const two = await cluster.start({ authtoken: one.authtoken, apiListen })
    const keyOf = ({ dataDir }: RunningGateway) => readFileSync(join(dataDir, SECRETS_KEY), 'utf8')
    expect(keyOf(one)).toBe(keyOf(two))
    const api = { one: (await managed(one)).call, two: (await managed(two)).call }
    const { body: domain } = await api.one('GET', '/reserved_domains')
    const [{ id: domainId }] = domain.reserved_domains
    await api.one('POST', '/vaults', { name: 'site' })
    const request = { vault_name: 'site', name: 'key', value: 'first', allow: [domainId] }
    const { body: made } = await api.one('POST', '/vault_secrets', request)
    const cloud = { url: 'http://cloud.site.test', traffic_policy: POLICY }
    expect((await api.one('POST', '/endpoints', cloud)).status).toBe(201)
    const path = `/vault_secrets/${made.id}`
    await eventually(async () => expect((await api.two('GET', path)).status).toBe(200))
    const agent = await RawAgent.connect(two)
    await agent.auth(one.authtoken.reveal())
    const Opts = { Domain: 'cam.site.test', TrafficPolicy: POLICY }
    expect(codeOf(await agent.bind('cam.site.test', { Proto: 'http', Opts }))).toBeUndefined()
    const answers = async () => {
      const asked = [one, two].flatMap(({ addresses: { http } }) =>
        ['cloud.site.test', 'cam.site.test'].map((host) =>
          publicRequest({
            ingress: `http://${http.host}:${http.port}`,
            address: http.host,
            host,
          }),
        ),
      )
      return (await Promise.all(asked)).map((it) => it.text)
    }
    await eventually(async () => expect(await answers()).toEqual(Array(4).fill('first')))
    expect((await api.one('PATCH', path, { value: 'second' })).status).toBe(200)
    await eventually(async () => expect(await answers()).toEqual(Array(4).fill('second')))
    // The device is at the other gateway.
    const { used_by: users } = (await api.one('GET', path)).body
    const hosts = users.map(({ url }: { url: string }) => new URL(url).hostname)
    expect(hosts.sort()).toEqual(['cam.site.test', 'cloud.site.test'])
    const listed = (await api.one('GET', '/vault_secrets')).body.secrets
    expect(listed).toMatchObject([{ id: made.id, used_by: [{}, {}] }])
    const refused = await api.one('DELETE', path)
    expect(refused.body).toMatchObject({ error_code: 'ERR_NGROK_24010' })
    expect(refused.body.msg).toContain('cam.site.test')
    await api.two('DELETE', `${path}/force`)
    await eventually(async () => {
      for (const text of await answers()) expect(text).not.toBe('second')
    })
  })
})
