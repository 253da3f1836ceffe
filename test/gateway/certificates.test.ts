import { X509Certificate } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { connect, createServer, type TLSSocket } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../src/base/app-error.ts'
import { systemClock } from '../../src/base/clock.ts'
import { CertificateAuthority } from '../../src/gateway/certificate-authority.ts'
import type { CertificateSource } from '../../src/gateway/certificate-file.ts'
import { CERTIFICATE_CHECK_MS } from '../../src/gateway/domain-certificate.ts'
import { DomainCertificates } from '../../src/gateway/domain-certificates.ts'
import { ServerCertificate } from '../../src/gateway/server-certificate.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { openGatewayStores } from '../helpers/gateway-stores.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const DAY_MS = 86_400_000
/** Two thirds of 91 days: certificates are backdated by one. */
const RENEWED_AFTER_MS = (91 * DAY_MS * 2) / 3 - DAY_MS
const { log } = captureLog()

/** Shakes hands over TLS as a strict client does and gives the outcome. */
async function handshake(server: { cert: string; key: string }, ca: string, name: string) {
  const listener = createServer(server).listen(0, '127.0.0.1')
  onTestFinished(() => void listener.close())
  await new Promise((resolve) => listener.once('listening', resolve))
  const address = listener.address()
  const port = typeof address === 'object' && address ? address.port : 0
  return new Promise<string>((resolve) => {
    // An address is no server name (RFC 6066), but it is checked against the certificate as well.
    const servername = isIP(name) ? {} : { servername: name }
    const socket: TLSSocket = connect({ port, host: '127.0.0.1', ca, ...servername }, () => {
      resolve('ok')
      socket.destroy()
    })
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
  })
}

describe('CertificateAuthority', () => {
  it('issues what a strict client accepts', async () => {
    const folder = temporaryFolder()
    const authority = await CertificateAuthority.open({ folder, clock: systemClock, log })
    const issued = await authority.issue(['localhost', '127.0.0.1', '::1', '*.site.localhost'])
    const server = { cert: issued.certPem, key: issued.keyPem }
    for (const name of ['localhost', 'cam.site.localhost', '127.0.0.1']) {
      expect(await handshake(server, authority.certPem, name), name).toBe('ok')
    }
    expect(await handshake(server, authority.certPem, 'x.cam.site.localhost')).toBe(
      'ERR_TLS_CERT_ALTNAME_INVALID',
    )
    const leaf = new X509Certificate(issued.certPem)
    expect(leaf.ca).toBe(false)
    expect(leaf.subjectAltName).toContain('IP Address:0:0:0:0:0:0:0:1')
    expect(leaf.checkIssued(new X509Certificate(authority.certPem))).toBe(true)
  })

  it('is not trusted by who trusts another one', async () => {
    const open = () =>
      CertificateAuthority.open({ folder: temporaryFolder(), clock: systemClock, log })
    const [own, other] = [await open(), await open()]
    const { certPem: cert, keyPem: key } = await own.issue(['localhost'])
    expect(await handshake({ cert, key }, other.certPem, 'localhost')).not.toBe('ok')
  })

  it('stays the same over restarts, in files that only the owner reads', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock()
    const first = await CertificateAuthority.open({ folder, clock, log })
    const second = await CertificateAuthority.open({ folder, clock, log })
    expect(second.certPem).toBe(first.certPem)
    expect(readdirSync(folder).sort()).toEqual(['ca.key', 'ca.pem'])
    for (const file of readdirSync(folder)) {
      expect(statSync(join(folder, file)).mode & 0o777, file).toBe(0o600)
    }
  })

  it('makes the certificate again when a first start was cut off after the key', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock()
    await CertificateAuthority.open({ folder, clock, log })
    const key = readFileSync(join(folder, 'ca.key'), 'utf8')
    rmSync(join(folder, 'ca.pem'))
    const again = await CertificateAuthority.open({ folder, clock, log })
    expect(readFileSync(join(folder, 'ca.key'), 'utf8')).toBe(key)
    expect(readFileSync(again.certPath, 'utf8')).toBe(again.certPem)
  })

  it('renews its certificate with the same key before it ends', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock()
    const first = await CertificateAuthority.open({ folder, clock, log })
    clock.stepWall(3_600 * DAY_MS)
    const second = await CertificateAuthority.open({ folder, clock, log })
    expect(second.certPem).not.toBe(first.certPem)
    const issued = new X509Certificate((await first.issue(['a.test'])).certPem)
    expect(issued.verify(new X509Certificate(second.certPem).publicKey)).toBe(true)
  })

  it('keeps who trusts it when the machine once started with a clock that was behind', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock(Date.now())
    const open = () => CertificateAuthority.open({ folder, clock, log })
    const given = await open()
    const before = await given.issue(['localhost'])
    clock.stepWall(-800 * DAY_MS)
    const behind = await open()
    clock.stepWall(800 * DAY_MS)
    const now = await open()
    expect(now.certPem).toBe(behind.certPem)
    for (const { certPem: cert, keyPem: key } of [before, await now.issue(['localhost'])]) {
      expect(await handshake({ cert, key }, given.certPem, 'localhost')).toBe('ok')
      expect(await handshake({ cert, key }, now.certPem, 'localhost')).toBe('ok')
    }
  })

  it('goes on with the certificate that it has while a new one cannot be written', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock(Date.now())
    const open = () => CertificateAuthority.open({ folder, clock, log })
    const given = await open()
    const inTheWay = `${given.certPath}.${process.pid}.tmp`
    mkdirSync(inTheWay)
    clock.stepWall(-800 * DAY_MS)
    const authority = await open()
    clock.stepWall(800 * DAY_MS)
    const { certPem: cert, keyPem: key } = await authority.issue(['localhost'])
    expect(await handshake({ cert, key }, given.certPem, 'localhost')).toBe('ok')
    clock.stepWall(3_600 * DAY_MS)
    rmSync(inTheWay, { recursive: true })
    await authority.refresh()
    expect(readFileSync(given.certPath, 'utf8')).not.toBe(given.certPem)
  })

  it('is made again with the name that devices know when its certificate is lost', async () => {
    const folder = temporaryFolder()
    const open = () => CertificateAuthority.open({ folder, clock: systemClock, log })
    const given = await open()
    writeFileSync(given.certPath, 'damaged')
    const { certPem: cert, keyPem: key } = await (await open()).issue(['localhost'])
    expect(await handshake({ cert, key }, given.certPem, 'localhost')).toBe('ok')
  })

  it('is renewed while it runs, such as after a first start in 1970', async () => {
    const clock = new ManualClock(0)
    const authority = await CertificateAuthority.open({ folder: temporaryFolder(), clock, log })
    const first = authority.certPem
    await authority.refresh()
    expect(authority.certPem).toBe(first)
    clock.stepWall(Date.now())
    await authority.refresh()
    expect(readFileSync(authority.certPath, 'utf8')).toBe(authority.certPem)
    const { certPem: cert, keyPem: key } = await authority.issue(['localhost'])
    expect(await handshake({ cert, key }, authority.certPem, 'localhost')).toBe('ok')
  })

  it.each([
    ['is gone', (path: string) => rmSync(path)],
    ['is damaged', (path: string) => writeFileSync(path, 'no key')],
  ])('does not start when its key %s', async (_what, harm) => {
    const folder = temporaryFolder()
    const clock = new ManualClock()
    await CertificateAuthority.open({ folder, clock, log })
    harm(join(folder, 'ca.key'))
    await expect(CertificateAuthority.open({ folder, clock, log })).rejects.toThrow(StartError)
  })
})

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
    const { clock, domains } = stores
    const authority = await CertificateAuthority.open({ folder: stores.folder, clock, log })
    const folder = join(stores.folder, 'certificates')
    const open = (issuer: CertificateSource = authority) =>
      new DomainCertificates({ folder, authority: issuer, acme: undefined, domains, clock, log })
    return { ...stores, folder, authority, open }
  }

  it('serves a reserved wildcard, its apex and an exact name', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    registrar.reserve({ domain: '*.site.test' })
    registrar.reserve({ domain: 'one.other.test' })
    const certificates = open()
    await certificates.refresh()
    const wildcard = certificates.context('cam.site.test')
    expect(wildcard).toBeDefined()
    expect(certificates.context('site.test')).toBe(wildcard)
    expect(certificates.context('one.other.test')).toBeDefined()
    for (const name of ['x.cam.site.test', 'other.test', 'test', '', 'site.test.evil']) {
      expect(certificates.context(name), name).toBeUndefined()
    }
    expect(readdirSync(folder)).toHaveLength(2)
  })

  it('covers a deeper name before it goes online', async () => {
    const { registrar, open } = await openDomainCertificates()
    registrar.reserve({ domain: '*.site.test' })
    const certificates = open()
    await certificates.refresh()
    const wildcard = certificates.context('cam.site.test')
    for (const host of ['cam.site.test', '*.site.test', 'x.cam.site.test', '*.door.site.test']) {
      await certificates.cover(host)
    }
    expect(certificates.context('cam.site.test')).toBe(wildcard)
    expect(certificates.context('x.cam.site.test')).toBeDefined()
    expect(certificates.context('y.cam.site.test')).toBe(certificates.context('x.cam.site.test'))
    expect(certificates.context('x.door.site.test')).toBeDefined()
    expect(certificates.context('x.window.site.test')).toBeUndefined()
  })

  it('follows domains that are reserved and given up', async () => {
    const { registrar, open, folder, clock } = await openDomainCertificates()
    const certificates = open()
    await certificates.refresh()
    const domain = registrar.reserve({ domain: '*.site.test' })
    const issuing = certificates.follow(domain)
    expect(certificates.statusOf(domain)).toEqual({
      renewsAt: undefined,
      job: { startedAt: clock.now(), error: undefined, retriesAt: undefined },
    })
    await issuing
    expect(certificates.statusOf(domain)).toEqual({
      renewsAt: clock.now() + RENEWED_AFTER_MS,
      job: undefined,
    })
    registrar.release(domain)
    await certificates.follow(domain)
    expect(certificates.context('cam.site.test')).toBeUndefined()
    expect(readdirSync(folder)).toEqual([])
  })

  it('leaves nothing behind of a domain that is given up while its certificate is issued', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    const certificates = open()
    await certificates.refresh()
    const domain = registrar.reserve({ domain: '*.site.test', privateKeyType: 'rsa' })
    const issuing = certificates.follow(domain)
    await new Promise((resolve) => setImmediate(resolve))
    registrar.release(domain)
    await certificates.follow(domain)
    await issuing
    expect(certificates.context('cam.site.test')).toBeUndefined()
    expect(readdirSync(folder)).toEqual([])
  })

  it('knows what happened to a domain while others were renewed', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    const slow = registrar.reserve({ domain: '*.a.test', privateKeyType: 'rsa' })
    const gone = registrar.reserve({ domain: '*.b.test' })
    const changed = registrar.reserve({ domain: '*.c.test' })
    const certificates = open()
    const renewing = certificates.refresh()
    await new Promise((resolve) => setImmediate(resolve))
    registrar.release(gone)
    const following = [
      certificates.follow(gone),
      certificates.follow(registrar.update(changed, { privateKeyType: 'rsa' })),
    ]
    await Promise.all([renewing, ...following])
    expect(certificates.context('cam.b.test')).toBeUndefined()
    expect(readdirSync(folder).sort()).toEqual([`${slow.id}.pem`, `${changed.id}.pem`])
    const pem = readFileSync(join(folder, `${changed.id}.pem`))
    expect(new X509Certificate(pem).publicKey.asymmetricKeyType).toBe('rsa')
    expect(certificates.statusOf(changed).job).toBeUndefined()
  })

  it('renews while it runs, and says why when it cannot', async () => {
    const { registrar, authority, open, clock } = await openDomainCertificates()
    const domain = registrar.reserve({ domain: '*.site.test' })
    let isBroken = false
    const certificates = open({
      issue: (names) => (isBroken ? Promise.reject(new Error('broken')) : authority.issue(names)),
      hasIssued: (certificate) => authority.hasIssued(certificate),
    })
    await certificates.refresh()
    const first = certificates.context('cam.site.test')
    clock.stepWall(61 * DAY_MS)
    isBroken = true
    await certificates.refresh()
    expect(certificates.statusOf(domain).job).toEqual({
      startedAt: clock.now(),
      error: expect.stringContaining('could not be issued'),
      retriesAt: clock.now() + CERTIFICATE_CHECK_MS,
    })
    expect(certificates.context('cam.site.test')).toBe(first)
    isBroken = false
    await certificates.refresh()
    expect(certificates.context('cam.site.test')).not.toBe(first)
    expect(certificates.statusOf(domain).job).toBeUndefined()
  })

  it('serves what cannot be saved, and saves it as soon as it can be', async () => {
    const { registrar, open, folder } = await openDomainCertificates()
    const domain = registrar.reserve({ domain: '*.site.test' })
    const path = join(folder, `${domain.id}.pem`)
    mkdirSync(path, { recursive: true })
    const certificates = open()
    await certificates.refresh()
    const served = certificates.context('cam.site.test')
    expect(served).toBeDefined()
    expect(certificates.statusOf(domain).job).toBeUndefined()
    rmSync(path, { recursive: true })
    await certificates.refresh()
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(certificates.context('cam.site.test')).toBe(served)
  })
})
