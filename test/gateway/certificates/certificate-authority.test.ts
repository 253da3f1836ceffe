import { X509Certificate } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { join } from 'node:path'
import { connect, createServer, type TLSSocket } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { CertificateAuthority } from '../../../src/gateway/certificates/certificate-authority.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const DAY_MS = 86_400_000
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

  it('keeps those who got its certificate while the clock was ahead', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock(Date.now() + 800 * DAY_MS)
    const open = () => CertificateAuthority.open({ folder, clock, log })
    const given = await open()
    clock.stepWall(-800 * DAY_MS)
    const { certPem: cert, keyPem: key } = await (await open()).issue(['localhost'])
    expect(await handshake({ cert, key }, given.certPem, 'localhost')).toBe('ok')
  })

  it('says that its certificate begins in the future, and makes another', async () => {
    const folder = temporaryFolder()
    const clock = new ManualClock(Date.now() + 8_000 * DAY_MS)
    const captured = captureLog()
    const open = () => CertificateAuthority.open({ folder, clock, log: captured.log })
    const given = await open()
    clock.stepWall(-8_000 * DAY_MS)
    expect((await open()).certPem).not.toBe(given.certPem)
    expect(captured.text()).toContain('ca certificate began in the future, renewed')
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
