import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'

describe.skipIf(!hasPostgres)('error pages of gateways on one PostgreSQL', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('are shown by each gateway, whichever was told', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const { call } = await managed(
      await cluster.start({ apiListen: { host: '127.0.0.1', port: 0 } }),
    )
    const { addresses } = await cluster.start()
    const see = async () => {
      const ingress = `http://127.0.0.1:${addresses.http.port}`
      const headers = { accept: 'text/html' }
      return (await publicRequest({ ingress, host: 'no.test', headers })).text
    }
    expect(await see()).toContain('<h1>Address not found</h1>')
    const made = await call('POST', '/error_pages', { kind: 'unknown', html: 'own {{host}}' })
    expect(made.status).toBe(201)
    await eventually(async () => expect(await see()).toBe('own no.test'))
    await call('DELETE', `/error_pages/${made.body.id}`)
    await eventually(async () => expect(await see()).toContain('<h1>Address not found</h1>'))
  })
})
