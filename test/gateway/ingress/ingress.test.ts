import { createSecureContext, connect as tlsConnect } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts'
import { Ingress } from '../../../src/gateway/ingress/ingress.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startScriptedService } from '../../helpers/raw-http.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

describe('an ingress', () => {
  it('says in one sentence that its address is taken', async () => {
    const site = await startIngressSite({ service: 1 })
    const second = new Ingress({
      registry: new EndpointRegistry(),
      http: site.addresses.http,
      https: { host: '127.0.0.1', port: 0 },
      tls: { served: () => ({ certPem: '', keyPem: '', context: createSecureContext() }) },
      log: site.captured.log,
      clock: systemClock,
    })
    await expect(second.start()).rejects.toThrow(
      `Visitors cannot connect on 127.0.0.1:${site.addresses.http.port}: `,
    )
    await second.stop(0)
  })

  it('stops as often as it is asked to', async () => {
    const site = await startIngressSite({ service: 1 })
    await Promise.all([site.ingress.stop(0), site.ingress.stop(0)])
    await site.ingress.stop(0)
  })

  it('keeps a mistake of its own to the connection that met it', async () => {
    const service = await startScriptedService(OK)
    const site = await startIngressSite({ service: service.port })
    site.bind('b.test', 'https', {
      hasRequestRules: true,
      onHttpRequest: () => {
        throw new Error('a bug')
      },
    })
    const unlucky = RawClient.connect(site.addresses.http.port)
    unlucky.send(GET.replace('a.test', 'b.test'))
    await unlucky.end()
    expect(site.captured.text()).toContain('client connection failed')
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    await client.receive('ok')
  })
})

describe('the secure front', () => {
  it('asks for the certificate of the name that a client wants, or of none', async () => {
    const service = await startScriptedService(OK)
    const site = await startIngressSite({ service: service.port })
    for (const servername of ['LOCALHOST', '']) {
      const options = { port: site.addresses.https.port, host: '127.0.0.1', servername }
      const client = new RawClient(tlsConnect({ ...options, ca: site.caPem }))
      client.send(GET)
      await client.receive('ok')
    }
    expect(site.serverNames).toEqual(['localhost', undefined])
  })

  it('serves a new certificate to new connections', async () => {
    const service = await startScriptedService(OK)
    const site = await startIngressSite({ service: service.port })
    const before = RawClient.connectTls(site.addresses.https.port, site.caPem)
    before.send(GET)
    await before.receive('ok')
    const renewed = await createTlsFixture()
    site.useCertificate(renewed)
    const after = RawClient.connectTls(site.addresses.https.port, renewed.caPem)
    after.send(GET)
    await after.receive('ok')
    before.send(GET)
    await eventually(() => expect(before.text).toBe(OK.repeat(2)))
  })

  it('drops who does not speak TLS', async () => {
    const site = await startIngressSite({ service: 1 })
    const client = RawClient.connect(site.addresses.https.port)
    client.send(GET)
    await client.end()
    expect(client.text).not.toContain('HTTP')
  })
})
