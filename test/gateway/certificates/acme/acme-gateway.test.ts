import { once } from 'node:events'
import { connect } from 'node:tls'
import { expect, it } from 'vitest'
import { formatListenAddress, type ListenAddress } from '../../../../src/base/listen-address.ts'
import { AcmeServer } from '../../../helpers/acme-server.ts'
import { startDnsServer } from '../../../helpers/dns-server.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { startGateway } from '../../../helpers/running-gateway.ts'

const ANY_PORT = { host: '127.0.0.1', port: 0 }

/** Shakes hands as a visitor who trusts one CA only. */
async function visit({ port }: ListenAddress, servername: string, ca: string): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', servername, ca })
  try {
    await once(socket, 'secureConnect')
    return 'trusted'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? ''
  } finally {
    socket.destroy()
  }
}

it('walks from a reserved domain over its DNS records to a certificate of the authority', async () => {
  const records: Record<string, string> = {}
  const dnsServer = await startDnsServer(records)
  const dns = { address: '' }
  const acme = await AcmeServer.start({
    records: dnsServer,
    challenges: () => dns.address,
    now: Date.now,
  })
  const { gateway, addresses } = await startGateway({
    apiListen: ANY_PORT,
    dnsListen: ANY_PORT,
    dnsServers: [dnsServer],
    cnameBase: 'gateway.test',
    acme: { directoryUrl: acme.directoryUrl, email: undefined },
  })
  dns.address = formatListenAddress(addresses.dns ?? ANY_PORT)
  const key = (await gateway.provisionApiKey({ description: 'test', apiKey: undefined })).reveal()
  const call = async (method: string, path: string, body?: object) => {
    const response = await fetch(`http://127.0.0.1:${addresses.api?.port}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
    return { body: (await response.json()) as any }
  }

  const { body: domain } = await call('POST', '/reserved_domains', {
    domain: '*.shop.test',
    certificate_management_policy: { authority: 'letsencrypt' },
  })
  const path = `/reserved_domains/${domain.id}`
  const status = async () => (await call('GET', path)).body.certificate_management_status
  expect(domain.certificate_management_policy).toEqual({
    authority: 'letsencrypt',
    private_key_type: 'ecdsa',
    challenge: 'dns-01',
  })
  expect(domain.certificate_management_status.provisioning_job).toMatchObject({
    error_code: null,
    msg: 'Managed certificate provisioning in progress.',
  })
  // Nobody has added the records yet.
  await eventually(async () =>
    expect((await status()).provisioning_job).toMatchObject({
      error_code: 'ERR_GATEWAY_CERTIFICATE',
      msg: expect.stringContaining('_acme-challenge.shop.test'),
      retries_at: expect.any(String),
    }),
  )
  const { body: ready } = await call('GET', '/readyz')
  expect(ready).toEqual({
    ...{ ready: true, degraded: true },
    reasons: [expect.stringContaining('could not be issued: 1.')],
  })
  expect(await visit(addresses.https, 'cam.shop.test', acme.caPem)).toMatch(/^UNABLE_TO/)
  expect((await call('POST', `${path}/check`)).body.ok).toBe(false)

  records['*.shop.test'] = domain.cname_target
  records['_acme-challenge.shop.test'] = domain.acme_challenge_cname_target
  expect((await call('POST', `${path}/check`)).body.ok).toBe(true)
  await eventually(async () => expect((await status()).provisioning_job).toBeNull())
  expect((await status()).renews_at).toEqual(expect.any(String))
  expect((await call('GET', '/readyz')).body).toMatchObject({ degraded: false, reasons: [] })
  expect(await visit(addresses.https, 'cam.shop.test', acme.caPem)).toBe('trusted')

  const back = await call('PATCH', path, {
    certificate_management_policy: { authority: 'gateway' },
  })
  expect(back.body.certificate_management_policy.authority).toBe('gateway')
  expect(await visit(addresses.https, 'cam.shop.test', acme.caPem)).toMatch(/^UNABLE_TO/)
})
