import { once } from 'node:events'
import { type ClientRequest, request } from 'node:http'
import { expect, it, onTestFinished } from 'vitest'
import { parseCidr } from '../../../src/base/net/network.ts'
import { forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { connectSdk, startGateway } from '../../helpers/running-gateway.ts'

/** More than the streams of a device. */
const CROWD = 460
const SECOND = '2001:db8:1::1'

it('counts visitors behind a trusted proxy by their own address, IPv6 by /64, and keeps streams for the next', async () => {
  const held = new Set<string>()
  const service = await startDeviceService(({ url = '' }, response) => {
    if (url.startsWith('/held/')) held.add(url)
    else response.end('ok')
  })
  const networks = [parseCidr('127.0.0.1') ?? expect.fail('no CIDR')]
  const { addresses, ...running } = await startGateway({
    proxies: { networks, header: 'x-forwarded-for', sendProxyProtocol: false },
  })
  const sdk = await connectSdk({ addresses, ...running })
  await forward(sdk, service, { domain: 'a.site.test' })
  const ask = (path: string, visitor: string): ClientRequest => {
    const asked = request({
      host: '127.0.0.1',
      port: addresses.http.port,
      path,
      agent: false,
      headers: { host: 'a.site.test', 'x-forwarded-for': visitor },
    })
    asked.on('error', () => {})
    asked.end()
    onTestFinished(() => void asked.destroy())
    return asked
  }
  // Addresses of one /64 are one visitor, however many they are.
  for (let at = 0; at < CROWD; at += 1) ask(`/held/${at}`, `2001:db8::${at.toString(16)}`)
  await eventually(() => expect(held.size).toBeGreaterThan(400))
  const [answer] = await once(ask('/', SECOND), 'response')
  expect(answer.statusCode).toBe(200)
  expect(held.size).toBeLessThan(448)
})
