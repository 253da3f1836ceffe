import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { AcmeServer } from '../helpers/acme-server.ts'
import { startDnsServer } from '../helpers/dns-server.ts'
import { eventually } from '../helpers/eventually.ts'
import { Program } from '../helpers/program.ts'
import type { GatewayReady } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** The ACME client is a part of the program that only such a gateway loads. */
it('the built gateway orders a certificate from an ACME authority', async () => {
  const records: Record<string, string> = {}
  const dns = { address: '' }
  const acme = await AcmeServer.start({
    records: await startDnsServer(records),
    challenges: () => dns.address,
    now: Date.now,
  })
  const folder = temporaryFolder()
  const gateway = new Program({
    args: ['gateway', '--json'],
    cwd: folder,
    env: {
      GATEWAY_DATA_DIR: join(folder, 'gateway'),
      GATEWAY_ACME_DIRECTORY: acme.directoryUrl,
      GATEWAY_DNS_LISTEN: '127.0.0.1:0',
      GATEWAY_CNAME_BASE: 'gateway.test',
      LOG_LEVEL: 'warn',
    },
  })
  onTestFinished(async () => void (await gateway.end()))
  const ready = await gateway.ready<GatewayReady & { dns_listen: string }>()
  dns.address = ready.dns_listen
  const key = readFileSync(ready.api_key_file, 'utf8').trim()
  const call = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
    return (await response.json()) as any
  }
  const domain = await call('POST', '/reserved_domains', { domain: '*.shop.test' })
  records['_acme-challenge.shop.test'] = domain.acme_challenge_cname_target
  const path = `/reserved_domains/${domain.id}`
  await call('PATCH', path, { certificate_management_policy: { authority: 'letsencrypt' } })
  await eventually(async () => {
    // The API allows 120 requests a minute.
    await new Promise((resolve) => setTimeout(resolve, 100))
    const { certificate_management_status: status } = await call('GET', path)
    expect(status).toEqual({ renews_at: expect.any(String), provisioning_job: null })
  })
  expect(acme.orders).toMatchObject([{ status: 'valid' }])
})
