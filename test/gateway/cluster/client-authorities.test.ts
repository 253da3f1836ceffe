import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { createAuthority } from '../../helpers/tls-fixture.ts'

describe.skipIf(!hasPostgres)('a certificate authority at two gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('lets visitors in at both, until it is deleted at one', async () => {
    const authority = await createAuthority()
    const client = await authority.issue({ purpose: 'client' })
    const cluster = GatewayCluster.open(await postgres.database())
    const apiListen = { host: '127.0.0.1', port: 0 }
    const one = await cluster.start({ apiListen })
    const two = await cluster.start({ authtoken: one.authtoken, apiListen })
    const api = { one: (await managed(one)).call, two: (await managed(two)).call }
    const { body } = await api.one('POST', '/certificate_authorities', { ca_pem: authority.caPem })
    const path = `/certificate_authorities/${body.id}`
    const policy = {
      on_tcp_connect: [
        {
          actions: [
            { type: 'terminate-tls', config: { mutual_tls_certificate_authorities: [body.id] } },
          ],
        },
      ],
      on_http_request: [
        { actions: [{ type: 'custom-response', config: { status_code: 200, body: 'in' } }] },
      ],
    }
    // The second gateway refuses a policy with an id that has not arrived there.
    await eventually(async () => expect((await api.two('GET', path)).status).toBe(200))
    const endpoint = { url: 'https://c.site.test', traffic_policy: JSON.stringify(policy) }
    expect((await api.two('POST', '/endpoints', endpoint)).status).toBe(201)
    const visits = (more: object) =>
      Promise.all(
        [one, two].map(({ addresses: { https, caCertPath } }) =>
          publicRequest({
            ingress: `https://${https.host}:${https.port}`,
            address: https.host,
            ca: readFileSync(caCertPath, 'utf8'),
            host: 'c.site.test',
            ...more,
          }).then(
            ({ text }) => text,
            () => 'refused',
          ),
        ),
      )
    await eventually(async () => expect(await visits({ client })).toEqual(['in', 'in']))
    expect(await visits({})).toEqual(['refused', 'refused'])
    expect((await api.one('DELETE', path)).status).toBe(204)
    await eventually(async () => expect(await visits({ client })).toEqual(['refused', 'refused']))
  })
})
