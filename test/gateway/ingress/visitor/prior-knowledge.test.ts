import { once } from 'node:events'
import { connect, constants } from 'node:http2'
import { expect, it, onTestFinished } from 'vitest'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { startRawService } from '../../../helpers/raw-http.ts'

it('tells who begins HTTP/2 on the plain port to use HTTP/1.1', async () => {
  const site = await startIngressSite({ service: await startRawService(() => {}) })
  const client = connect(`http://127.0.0.1:${site.addresses.http.port}`)
  client.on('error', () => {})
  onTestFinished(() => client.destroy())
  client.request({ ':path': '/', ':authority': 'a.test' }).on('error', () => {})
  const [code, lastStream, reason] = await once(client, 'goaway')
  expect([code, lastStream]).toEqual([constants.NGHTTP2_HTTP_1_1_REQUIRED, 0])
  expect(String(reason)).toBe('This port speaks HTTP/1.1. Use the HTTPS port for HTTP/2.')
})
