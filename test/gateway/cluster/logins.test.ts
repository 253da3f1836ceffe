import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { forward } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { startLoginService, TYPE_1, TYPE_2, TYPE_3 } from '../../helpers/login-service.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import { connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'

const HOST = 'cam.site.test'
const get = (user: string, credentials?: string) =>
  `GET / HTTP/1.1\r\nHost: ${HOST}\r\n${credentials ? `x-user: ${user}\r\nAuthorization: ${credentials}\r\n` : ''}\r\n`

describe.skipIf(!hasPostgres)('a login of a visitor at another gateway than the device', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('stays with the connection of its visitor, and ends with it', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start()
    const two = await cluster.start({ authtoken: one.authtoken })
    const service = await startLoginService()
    await forward(await connectSdk(one), `http://127.0.0.1:${service.port}`, { domain: HOST })
    await eventually(() => {
      expect(nodeIn(two.gateway)?.routes.match(HOST, 'http')?.type).toBe('remote')
    })
    const visitor = ({ addresses: { http } }: RunningGateway) =>
      RawClient.connect(http.port, http.host)
    const users = ['ann.', 'bob.', 'eve.']
    const clients = users.map(() => visitor(two))
    await Promise.all(
      clients.map(async (client, at) => {
        const user = users[at] as string
        client.send(get(user, TYPE_1))
        await client.receive(TYPE_2)
        client.send(get(user, TYPE_3))
        await client.receive(`you are ${user}`)
      }),
    )
    for (const stranger of [visitor(two), visitor(one), visitor(two)]) {
      stranger.send(get(''))
      expect(await stranger.receive('\r\n\r\n')).toContain('401')
      stranger.socket.destroy()
    }
    for (const [at, client] of clients.entries()) {
      client.send(get(''))
      await eventually(() => expect(client.text.split(`you are ${users[at]}`)).toHaveLength(3))
      client.socket.destroy()
    }
    const after = visitor(two)
    after.send(get(''))
    expect(await after.receive('\r\n\r\n')).toContain('401')
    after.socket.destroy()
    // The connections that were logged in have ended.
    await eventually(() => expect(service.sockets.size).toBeLessThanOrEqual(2))
  })
})
