import { X509Certificate } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { formatListenAddress } from '../../../../src/base/listen-address.ts'
import { AcmeAuthority } from '../../../../src/gateway/certificates/acme/acme-authority.ts'
import { answerDns } from '../../../../src/gateway/certificates/acme/dns-answer.ts'
import { DnsListener } from '../../../../src/gateway/certificates/acme/dns-listener.ts'
import { ChallengeZone } from '../../../../src/gateway/certificates/acme/order-book.ts'
import { CertificateAuthority } from '../../../../src/gateway/certificates/certificate-authority.ts'
import { DomainCertificates } from '../../../../src/gateway/certificates/domain-certificates.ts'
import { challengeTarget, challengeZone } from '../../../../src/gateway/records/domain-name.ts'
import { AcmeServer } from '../../../helpers/acme-server.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { startDnsServer } from '../../../helpers/dns-server.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'

const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000
const CNAME_BASE = 'gateway.test'

async function openSite({ hasRecord = true, authorityAheadMs = 0 } = {}) {
  const stores = openGatewayStores(undefined, { hasAcme: true })
  const { clock, domains, folder } = stores
  const { log, text: logText } = captureLog()
  const zone = new ChallengeZone(challengeZone(CNAME_BASE))
  const dns = new DnsListener({
    listen: { host: '127.0.0.1', port: 0 },
    answer: (message, transport) => answerDns(message, zone, transport),
    clock,
    log,
  })
  const address = await dns.start()
  onTestFinished(() => dns.stop())
  const domain = await stores.registrar.reserve({ domain: '*.site.test', authority: 'letsencrypt' })
  const records: Record<string, string> = {}
  const addRecord = () => {
    records['_acme-challenge.site.test'] = challengeTarget(domain, CNAME_BASE)
  }
  if (hasRecord) addRecord()
  const acme = await AcmeServer.start({
    records: await startDnsServer(records),
    challenges: () => formatListenAddress(address),
    now: () => clock.now() + authorityAheadMs,
  })
  const own = await CertificateAuthority.open({ folder, clock, log })
  const open = async () => {
    const certificates = new DomainCertificates({
      folder: join(folder, 'certificates'),
      authority: own,
      acme: new AcmeAuthority({
        directoryUrl: acme.directoryUrl,
        email: 'site@example.test',
        folder,
        zone,
        cnameBase: CNAME_BASE,
        hasDns: true,
      }),
      domains,
      uploads: stores.tlsCertificates,
      seal: stores.seal,
      clock,
      log,
    })
    onTestFinished(() => certificates.stop())
    await certificates.refresh()
    return certificates
  }
  const file = join(folder, 'certificates', `${domain.id}.127.0.0.1.pem`)
  return { ...stores, acme, addRecord, domain, open, file, zone, logText }
}

type Site = Awaited<ReturnType<typeof openSite>>

/** Waits until no issue is under way and gives the status. */
function settled(certificates: DomainCertificates, { domain }: Site) {
  return eventually(() => {
    const status = certificates.statusOf(domain)
    if (status.job && status.job.error === undefined) throw new Error('still under way')
    return status
  })
}

describe('a domain whose certificate comes from an ACME authority', () => {
  it('is served the own CA first, then what the authority issued', async () => {
    const site = await openSite()
    const { acme, domain, clock, file, zone } = site
    const certificates = await site.open()
    const first = certificates.served('cam.site.test')
    expect(first).toBeDefined()
    expect(certificates.statusOf(domain)).toMatchObject({
      renewsAt: undefined,
      job: { startedAt: clock.now(), error: undefined, retriesAt: undefined },
    })
    expect(await settled(certificates, site)).toEqual({
      renewsAt: clock.now() + 60 * DAY_MS,
      endsAt: expect.any(Number),
      job: undefined,
    })
    expect(certificates.served('cam.site.test')).not.toBe(first)
    const leaf = new X509Certificate(readFileSync(file))
    expect(leaf.subjectAltName).toBe('DNS:*.site.test')
    expect(leaf.verify(new X509Certificate(acme.caPem).publicKey)).toBe(true)
    expect(readFileSync(file, 'utf8')).toContain(acme.caPem)
    expect(zone.valuesOf(challengeTarget(domain, CNAME_BASE))).toEqual([])
    expect(acme.contacts[0]).toEqual(['mailto:site@example.test'])
  })

  it('keeps certificate and account over restarts, in files that only the owner reads', async () => {
    const site = await openSite()
    const { acme, folder, file } = site
    await settled(await site.open(), site)
    const again = await site.open()
    expect(again.statusOf(site.domain).job).toBeUndefined()
    expect(acme.orders).toHaveLength(1)
    for (const path of [file, join(folder, 'acme-account.key')]) {
      expect(statSync(path).mode & 0o777, path).toBe(0o600)
    }
    site.clock.stepWall(61 * DAY_MS)
    await settled(await site.open(), site)
    expect(acme.orders).toHaveLength(2)
    expect(acme.accounts).toBe(1)
  })

  it('is renewed when a third of its life is left, without a gap', async () => {
    const site = await openSite()
    const certificates = await site.open()
    await settled(certificates, site)
    const first = certificates.served('cam.site.test')
    await site.clock.advance(59 * DAY_MS)
    expect(certificates.served('cam.site.test')).toBe(first)
    expect(site.acme.orders).toHaveLength(1)
    await site.clock.advance(2 * DAY_MS)
    await eventually(() => expect(certificates.served('cam.site.test')).not.toBe(first))
    expect(site.acme.orders).toHaveLength(2)
  })

  it('says what the authority missed, and tries again later', async () => {
    const site = await openSite({ hasRecord: false })
    const { clock, acme } = site
    const certificates = await site.open()
    const { job, renewsAt } = await settled(certificates, site)
    expect(job?.error).toContain('No TXT record at _acme-challenge.site.test')
    expect(job?.startedAt).toBe(clock.now())
    expect(job?.retriesAt).toBeGreaterThanOrEqual(clock.now() + 60_000)
    expect(job?.retriesAt).toBeLessThanOrEqual(clock.now() + 300_000)
    expect(renewsAt).toBeUndefined()
    expect(certificates.served('cam.site.test')).toBeDefined()
    site.addRecord()
    await clock.advance(300_000)
    await eventually(() => expect(certificates.statusOf(site.domain).job).toBeUndefined())
    expect(acme.orders).toHaveLength(2)
  })

  it('says that the account key cannot be written, without its path', async () => {
    const site = await openSite()
    mkdirSync(join(site.folder, `acme-account.key.${process.pid}.tmp`))
    const { job } = await settled(await site.open(), site)
    expect(job?.error).toContain('acme-account.key cannot be written')
    expect(job?.error).not.toContain(site.folder)
  })

  it('waits longer after each failure, and tries at once when told to', async () => {
    const site = await openSite()
    const { clock, acme } = site
    acme.refusal = 'too many orders for this name'
    const certificates = await site.open()
    const waits: number[] = []
    while (waits.length < 20) {
      const { job } = await settled(certificates, site)
      expect(job?.error).toContain('too many orders for this name')
      waits.push((job?.retriesAt ?? 0) - clock.now())
      await clock.advance(waits.at(-1) ?? 0)
    }
    await settled(certificates, site)
    expect(Math.min(...waits)).toBeGreaterThanOrEqual(60_000)
    expect(Math.max(...waits)).toBeGreaterThan(HOUR_MS)
    expect(Math.max(...waits)).toBeLessThanOrEqual(12 * HOUR_MS)
    acme.refusal = undefined
    certificates.retry(site.domain)
    await eventually(() => expect(certificates.statusOf(site.domain).job).toBeUndefined())
    expect(acme.orders).toHaveLength(1)
  })

  it('is ordered out of turn a few times an hour, however often somebody asks', async () => {
    const site = await openSite({ hasRecord: false })
    const certificates = await site.open()
    for (let asked = 0; asked < 6; asked += 1) {
      await settled(certificates, site)
      certificates.retry(site.domain)
      // What was rung for starts before anything else does.
      await new Promise((resolve) => setImmediate(resolve))
    }
    await settled(certificates, site)
    expect(site.acme.orders).toHaveLength(4)
  })

  it('may come from an authority whose clock is ahead', async () => {
    const site = await openSite({ authorityAheadMs: 60_000 })
    const certificates = await site.open()
    expect(await settled(certificates, site)).toMatchObject({ job: undefined })
    expect(site.acme.orders).toHaveLength(1)
  })

  it('keeps the certificate that it has while renewing fails', async () => {
    const site = await openSite()
    const certificates = await site.open()
    await settled(certificates, site)
    const first = certificates.served('cam.site.test')
    site.acme.refusal = 'closed today'
    await site.clock.advance(61 * DAY_MS)
    await eventually(() => expect(certificates.statusOf(site.domain).job?.error).toBeDefined())
    expect(certificates.served('cam.site.test')).toBe(first)
    expect(certificates.statusOf(site.domain).renewsAt).toBeLessThan(site.clock.now())
  })

  it('is served though it cannot be saved, and saved later without another order', async () => {
    const site = await openSite()
    const { acme, clock, file, logText } = site
    mkdirSync(file, { recursive: true })
    const certificates = await site.open()
    const own = certificates.served('cam.site.test')
    expect(await settled(certificates, site)).toMatchObject({ job: undefined })
    expect(certificates.served('cam.site.test')).not.toBe(own)
    expect(logText()).toContain('certificate not saved')
    rmSync(file, { recursive: true })
    await clock.advance(600_000)
    await eventually(() => expect(readFileSync(file, 'utf8')).toContain(acme.caPem))
    expect(acme.orders).toHaveLength(1)
  })

  it('follows its policy to another kind of key and back to the own CA', async () => {
    const site = await openSite()
    const { registrar, domain, file, folder } = site
    const certificates = await site.open()
    await settled(certificates, site)
    const rsa = await registrar.update(domain, { privateKeyType: 'rsa' })
    const before = certificates.served('cam.site.test')
    const following = certificates.follow(rsa)
    expect(certificates.served('cam.site.test')).toBe(before)
    await following
    await settled(certificates, site)
    expect(new X509Certificate(readFileSync(file)).publicKey.asymmetricKeyType).toBe('rsa')
    const own = await registrar.update(rsa, { authority: 'gateway' })
    await certificates.follow(own)
    expect(certificates.statusOf(own).job).toBeUndefined()
    const pem = readFileSync(join(folder, 'certificates', `${domain.id}.pem`))
    expect(new X509Certificate(pem).publicKey.asymmetricKeyType).toBe('rsa')
    expect(certificates.served('cam.site.test')).toBeDefined()
    await registrar.release(own)
    await certificates.follow(own)
    expect(readdirSync(join(folder, 'certificates'))).toEqual([])
  })

  it('serves the earlier certificate after a change of the policy, until it expires', async () => {
    const site = await openSite()
    const { acme, clock, registrar, domain } = site
    const certificates = await site.open()
    await settled(certificates, site)
    const before = certificates.served('cam.site.test')?.certPem
    acme.refusal = 'closed today'
    const changed = await registrar.update(domain, { challenge: 'on-demand' })
    await certificates.follow(changed)
    const again = await site.open()
    for (const served of [certificates, again]) {
      expect(served.served('cam.site.test')?.certPem.slice(0, 400)).toBe(before?.slice(0, 400))
    }
    clock.stepWall(91 * DAY_MS)
    for (const expired of [certificates, again, await site.open()]) {
      const leaf = new X509Certificate(expired.served('cam.site.test')?.certPem ?? '')
      expect(leaf.issuer).toContain('device-agent gateway CA')
    }
  })

  it('leaves nothing behind when it is given up while an order is under way', async () => {
    const site = await openSite()
    const certificates = await site.open()
    expect(certificates.statusOf(site.domain).job).toBeDefined()
    await site.registrar.release(site.domain)
    await certificates.follow(site.domain)
    await eventually(() => expect(site.acme.orders[0]?.status).toBe('valid'))
    await eventually(() => expect(site.logText()).toContain('no longer needed'))
    expect(readdirSync(join(site.folder, 'certificates'))).toEqual([])
    expect(certificates.served('cam.site.test')).toBeUndefined()
  })
})
