import { join } from 'node:path'
import express from 'express'
import { expect, it } from 'vitest'
import { CertificateAuthority } from '../../../../src/gateway/certificates/certificate-authority.ts'
import { DomainCertificates } from '../../../../src/gateway/certificates/domain-certificates.ts'
import { readinessRoute } from '../../../../src/gateway/resources/nodes/routes.ts'
import { mountRoutes } from '../../../../src/http/routes.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { serveHttp } from '../../../helpers/serve-http.ts'

it('counts certificates that were not issued, and reads no records for anybody who asks', async () => {
  const { database, member, domains, registrar, folder, clock, ...stores } = openGatewayStores(
    undefined,
    { hasAcme: true },
  )
  await registrar.reserve({ domain: 'own.site.test' })
  await registrar.reserve({ domain: '*.one.site.test', authority: 'letsencrypt' })
  await registrar.reserve({ domain: '*.two.site.test', authority: 'letsencrypt' })
  const { log } = captureLog()
  const authority = await CertificateAuthority.open({ folder, clock, log })
  const domainCertificates = new DomainCertificates({
    ...{ authority, domains, uploads: stores.tlsCertificates, seal: stores.seal, clock, log },
    folder: join(folder, 'certificates'),
    // There is none: what has to come from one is not issued.
    acme: undefined,
  })
  await domainCertificates.refresh()
  const certificates = { ownEndsAt: undefined as number | undefined }
  const seal = { problem: undefined as string | undefined }
  const deps = { member, domainCertificates, certificates, seal, clock }
  const app = express().use(mountRoutes([readinessRoute(deps)]))
  const { at } = await serveHttp(app)
  // From here on whatever asks it throws.
  database.close()
  const ask = async () => {
    const response = await fetch(`http://127.0.0.1:${(at as { port: number }).port}/readyz`)
    return [response.status, await response.json()]
  }
  const failed = expect.stringContaining('could not be issued: 2.')
  const degraded = { ready: true, degraded: true }
  expect(await ask()).toEqual([200, { ...degraded, reasons: [failed] }])
  const day = 86_400_000
  for (const [inDays, said] of [
    [15, []],
    [13, [expect.stringMatching(/GATEWAY_TLS_CERT expires on \d{4}-\d\d-\d\d\. Replace it\.$/)]],
    [-1, [expect.stringMatching(/GATEWAY_TLS_CERT has expired on /)]],
  ] as const) {
    certificates.ownEndsAt = clock.now() + inDays * day
    expect(await ask()).toEqual([200, { ...degraded, reasons: [...said, failed] }])
  }
  seal.problem = 'The file is lost.'
  expect(await ask()).toMatchObject([
    200,
    { degraded: true, reasons: expect.arrayContaining(['The file is lost.']) },
  ])
})
