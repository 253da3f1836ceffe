import { X509Certificate } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { CertificateAuthority } from '../../../src/gateway/certificates/certificate-authority.ts'
import type { CertificateSource } from '../../../src/gateway/certificates/certificate-file.ts'
import {
  CERTIFICATE_CHECK_MS,
  DomainCertificates,
} from '../../../src/gateway/certificates/domain-certificates.ts'
import { ServerCertificate } from '../../../src/gateway/certificates/server-certificate.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const DAY_MS = 86_400_000
/** Two thirds of 91 days: certificates are backdated by one. */
const RENEWED_AFTER_MS = (91 * DAY_MS * 2) / 3 - DAY_MS
const { log } = captureLog()

describe('ServerCertificate', () => {
  async function openServerCertificate(folder = temporaryFolder(), names = ['localhost', '::1']) {
    const clock = new ManualClock()
    const authority = await CertificateAuthority.open({ folder, clock, log })
    const path = join(folder, 'server.pem')
    const open = () => new ServerCertificate({ path, names: () => names, authority, clock, log })
    return { folder, path, clock, authority, open }
  }

  it('is kept over restarts', async () => {
    const { path, open } = await openServerCertificate()
    expect(await open().refresh()).toBe(true)
    const pem = readFileSync(path, 'utf8')
    expect(statSync(path).mode & 0o777).toBe(0o600)
    const again = open()
    expect(await again.refresh()).toBe(true)
    expect(again.kept?.certPem).toBe(pem)
    expect(await again.refresh()).toBe(false)
  })

  it('is issued anew as soon as the machine has another address', async () => {
    const { path, authority, clock } = await openServerCertificate()
    let address = '192.0.2.7'
    const certificate = new ServerCertificate({
      path,
      names: () => ['localhost', address],
      authority,
      clock,
      log,
    })
    await certificate.refresh()
    expect(await certificate.refresh()).toBe(false)
    address = '192.0.2.8'
    expect(await certificate.refresh()).toBe(true)
    expect(certificate.kept?.names).toEqual(['localhost', '192.0.2.8'])
  })

  it('is renewed when a third of its life is left', async () => {
    const { clock, open } = await openServerCertificate()
    const certificate = open()
    await certificate.refresh()
    const first = certificate.kept
    clock.stepWall(RENEWED_AFTER_MS - 1_000)
    expect(await certificate.refresh()).toBe(false)
    clock.stepWall(2_000)
    expect(await certificate.refresh()).toBe(true)
    expect(certificate.kept?.notAfter).toBeGreaterThan((first?.notAfter ?? 0) + 59 * DAY_MS)
    expect(certificate.renewsAt).toBe(clock.now() + RENEWED_AFTER_MS)
  })

  it.each([
    ['names are missing', async (it: Opened) => openWith(it, ['localhost', 'gateway.lan'])],
    [
      'it is damaged',
      async (it: Opened) => {
        writeFileSync(it.path, 'damaged')
        return it.open()
      },
    ],
    [
      'the clock was ahead when it was made',
      async (it: Opened) => {
        it.clock.stepWall(-10 * DAY_MS)
        return it.open()
      },
    ],
    [
      'another CA issued it',
      async (it: Opened) => {
        const other = await CertificateAuthority.open({
          folder: temporaryFolder(),
          clock: it.clock,
          log,
        })
        const { path, clock } = it
        const names = () => ['localhost']
        return new ServerCertificate({ path, names, authority: other, clock, log })
      },
    ],
  ])('is issued anew when %s', async (_why, reopen) => {
    const opened = await openServerCertificate()
    await opened.open().refresh()
    const before = readFileSync(opened.path, 'utf8')
    const certificate = await reopen(opened)
    await certificate.refresh()
    expect(certificate.kept?.certPem).not.toBe(before)
    expect(readFileSync(opened.path, 'utf8')).toContain(certificate.kept?.keyPem)
  })

  type Opened = Awaited<ReturnType<typeof openServerCertificate>>
  const openWith = ({ path, authority, clock }: Opened, names: string[]) =>
    new ServerCertificate({ path, names: () => names, authority, clock, log })
})

describe('DomainCertificates', () => {
  async function openDomainCertificates() {
    const stores = openGatewayStores()
    const { clock, domains, tlsCertificates: uploads, seal } = stores
    const authority = await CertificateAuthority.open({ folder: stores.folder, clock, log })
    const folder = join(stores.folder, 'certificates')
    const open = (issuer: CertificateSource = authority) =>
      new DomainCertificates({
        ...{ folder, authority: issuer, acme: undefined, domains, uploads, seal, clock, log },
      })
    return { ...stores, folder, authority, open }
  }

  it('serves a reserved wildcard, its apex and an exact name', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    await registrar.reserve({ domain: '*.site.test' })
    await registrar.reserve({ domain: 'one.other.test' })
    const certificates = open()
    await certificates.refresh()
    const wildcard = certificates.served('cam.site.test')
    expect(wildcard).toBeDefined()
    expect(certificates.served('site.test')).toBe(wildcard)
    expect(certificates.served('one.other.test')).toBeDefined()
    for (const name of ['x.cam.site.test', 'other.test', 'test', '', 'site.test.evil']) {
      expect(certificates.served(name), name).toBeUndefined()
    }
    expect(readdirSync(folder)).toHaveLength(2)
  })

  it('covers a deeper name before it goes online', async () => {
    const { registrar, open } = await openDomainCertificates()
    await registrar.reserve({ domain: '*.site.test' })
    const certificates = open()
    await certificates.refresh()
    const wildcard = certificates.served('cam.site.test')
    for (const host of ['cam.site.test', '*.site.test', 'x.cam.site.test', '*.door.site.test']) {
      await certificates.cover(host, null)
    }
    expect(certificates.served('cam.site.test')).toBe(wildcard)
    expect(certificates.served('x.cam.site.test')).toBeDefined()
    expect(certificates.served('y.cam.site.test')).toBe(certificates.served('x.cam.site.test'))
    expect(certificates.served('x.door.site.test')).toBeDefined()
    expect(certificates.served('x.window.site.test')).toBeUndefined()
  })

  it('issues one certificate for visitors who come at once, and another after a failure', async () => {
    const { authority, open } = await openDomainCertificates()
    let [issues, isBroken] = [0, true]
    const certificates = open({
      issue: async (names) => {
        issues += 1
        if (isBroken) throw new Error('broken')
        return authority.issue(names)
      },
      hasIssued: (certificate) => authority.hasIssued(certificate),
    })
    const cover = () => certificates.cover('x.cam.site.test', null)
    await expect(Promise.all([cover(), cover()])).rejects.toThrow('broken')
    isBroken = false
    await Promise.all([cover(), cover(), cover()])
    expect([issues, certificates.isCovered('*.cam.site.test')]).toEqual([2, true])
  })

  it('keeps the last thousand certificates for deeper names', async () => {
    const { authority, open } = await openDomainCertificates()
    // One is good for fifty names: a thousand keys would take their time.
    let issued = authority.issue(['localhost'])
    const certificates = open({
      issue: () => issued,
      hasIssued: (certificate) => authority.hasIssued(certificate),
    })
    const cover = async (n: number) => {
      const names = Array.from({ length: 50 }, (_, index) => `*.cam${n + index}.site.test`)
      if (n % names.length === 0) issued = authority.issue(names)
      await certificates.cover(`x.cam${n}.site.test`, null)
    }
    const isCovered = (n: number) => certificates.served(`x.cam${n}.site.test`) !== undefined
    for (let n = 0; n < 1_000; n += 1) await cover(n)
    expect([0, 1, 999].map(isCovered)).toEqual([true, true, true])
    await cover(1_000)
    expect([0, 1, 1_000].map(isCovered)).toEqual([false, true, true])
  })

  it('follows domains that are reserved and given up', async () => {
    const { registrar, open, folder, clock } = await openDomainCertificates()
    const certificates = open()
    await certificates.refresh()
    const domain = await registrar.reserve({ domain: '*.site.test' })
    const issuing = certificates.follow(domain)
    expect(certificates.statusOf(domain)).toMatchObject({
      renewsAt: undefined,
      job: { startedAt: clock.now(), error: undefined, retriesAt: undefined },
    })
    await issuing
    expect(certificates.statusOf(domain)).toEqual({
      renewsAt: clock.now() + RENEWED_AFTER_MS,
      endsAt: expect.any(Number),
      job: undefined,
    })
    await registrar.release(domain)
    await certificates.follow(domain)
    expect(certificates.served('cam.site.test')).toBeUndefined()
    expect(readdirSync(folder)).toEqual([])
  })

  it('leaves nothing behind of a domain that is given up while its certificate is issued', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    const certificates = open()
    await certificates.refresh()
    const domain = await registrar.reserve({ domain: '*.site.test', privateKeyType: 'rsa' })
    const issuing = certificates.follow(domain)
    await new Promise((resolve) => setImmediate(resolve))
    await registrar.release(domain)
    await certificates.follow(domain)
    await issuing
    expect(certificates.served('cam.site.test')).toBeUndefined()
    expect(readdirSync(folder)).toEqual([])
  })

  it('takes away what a power cut has left, and nothing of others', async () => {
    const { registrar, open, folder, ids } = await openDomainCertificates()
    const { id } = await registrar.reserve({ domain: '*.site.test' })
    const gone = ids.next('rd')
    mkdirSync(folder)
    for (const name of [`${gone}.pem`, `${gone}.acme.test.pem`, `${id}.pem.77.tmp`, 'mine.pem']) {
      writeFileSync(join(folder, name), '')
    }
    await open().refresh()
    expect(readdirSync(folder).sort()).toEqual(['mine.pem', `${id}.pem`])
  })

  it('knows what happened to a domain while others were renewed', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    const slow = await registrar.reserve({ domain: '*.a.test', privateKeyType: 'rsa' })
    const gone = await registrar.reserve({ domain: '*.b.test' })
    const changed = await registrar.reserve({ domain: '*.c.test' })
    const certificates = open()
    const renewing = certificates.refresh()
    await new Promise((resolve) => setImmediate(resolve))
    await registrar.release(gone)
    const following = [
      certificates.follow(gone),
      certificates.follow(await registrar.update(changed, { privateKeyType: 'rsa' })),
    ]
    await Promise.all([renewing, ...following])
    expect(certificates.served('cam.b.test')).toBeUndefined()
    expect(readdirSync(folder).sort()).toEqual([`${slow.id}.pem`, `${changed.id}.pem`])
    const pem = readFileSync(join(folder, `${changed.id}.pem`))
    expect(new X509Certificate(pem).publicKey.asymmetricKeyType).toBe('rsa')
    expect(certificates.statusOf(changed).job).toBeUndefined()
  })

  it('renews while it runs, and says why when it cannot', async () => {
    const { registrar, authority, open, clock } = await openDomainCertificates()
    const domain = await registrar.reserve({ domain: '*.site.test' })
    let isBroken = false
    const certificates = open({
      issue: (names) => (isBroken ? Promise.reject(new Error('broken')) : authority.issue(names)),
      hasIssued: (certificate) => authority.hasIssued(certificate),
    })
    await certificates.refresh()
    const first = certificates.served('cam.site.test')
    clock.stepWall(61 * DAY_MS)
    isBroken = true
    await certificates.refresh()
    expect(certificates.statusOf(domain).job).toEqual({
      startedAt: clock.now(),
      error: expect.stringContaining('could not be issued'),
      retriesAt: clock.now() + CERTIFICATE_CHECK_MS,
    })
    expect(certificates.served('cam.site.test')).toBe(first)
    isBroken = false
    await certificates.refresh()
    expect(certificates.served('cam.site.test')).not.toBe(first)
    expect(certificates.statusOf(domain).job).toBeUndefined()
  })

  it('serves what cannot be saved, and saves it as soon as it can be', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    const domain = await registrar.reserve({ domain: '*.site.test' })
    const path = join(folder, `${domain.id}.pem`)
    mkdirSync(path, { recursive: true })
    const certificates = open()
    await certificates.refresh()
    const served = certificates.served('cam.site.test')
    expect(served).toBeDefined()
    expect(certificates.statusOf(domain).job).toBeUndefined()
    rmSync(path, { recursive: true })
    await certificates.refresh()
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(certificates.served('cam.site.test')).toBe(served)
  })
})
