import { createHash } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { AcmeAuthority } from '../../../src/gateway/certificates/acme/acme-authority.ts'
import { ChallengeZone } from '../../../src/gateway/certificates/acme/order-book.ts'
import { OrderGates } from '../../../src/gateway/certificates/acme/order-gate.ts'
import { OwnAddresses } from '../../../src/gateway/certificates/acme/own-addresses.ts'
import { CertificateAuthority } from '../../../src/gateway/certificates/certificate-authority.ts'
import { saveCertificate } from '../../../src/gateway/certificates/certificate-file.ts'
import { NameCertificates } from '../../../src/gateway/certificates/name-certificates.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'

/** Certificates of names below `*.site.test`. No order is placed: names count as covered, or have `dns-01`. */
async function openNames(challenge: 'on-demand' | 'dns-01' = 'on-demand') {
  const {
    folder: dataDir,
    clock,
    log,
    registrar,
    authority,
    ...stores
  } = openGatewayStores(undefined, { hasAcme: true })
  const folder = join(dataDir, 'certificates')
  mkdirSync(folder)
  const reserved = await registrar.reserve({
    ...{ domain: '*.site.test', authority: 'letsencrypt', challenge },
  })
  const holders = new Map<string, { readonly ownerId: string | null }>()
  const names = new NameCertificates({
    folder,
    acme: new AcmeAuthority({
      ...{ directoryUrl: 'https://127.0.0.1:1/', email: undefined, folder: dataDir },
      ...{ zone: new ChallengeZone('acme.test'), cnameBase: 'gateway.test', hasDns: false },
    }),
    gates: new OrderGates({
      orders: stores.certificateOrders,
      addresses: new OwnAddresses({ hosts: () => [], servers: ['127.0.0.1:1'], clock }),
      clock,
    }),
    holderOf: (host) => holders.get(host),
    reservationOf: (host) => authority.owners.reservationOf(host),
    wildcardAbove: (host) => authority.owners.reservationOf(host),
    isCovered: () => challenge === 'on-demand',
    clock,
    log,
  })
  onTestFinished(() => names.stop())
  const ca = await CertificateAuthority.open({ folder: dataDir, clock, log })
  /** A valid certificate of an earlier process. */
  const save = async (host: string) => {
    const label = createHash('sha256').update(host).digest('hex').slice(0, 32)
    const path = join(folder, `${reserved.id}.${label}.127.0.0.1.pem`)
    saveCertificate(path, await ca.issue([host]))
  }
  const bringOnline = (host: string, ownerId: string | null) => {
    names.cover(host, ownerId)
    holders.set(host, { ownerId })
  }
  /** Brings many names of an account online, and returns them. */
  const fill = (ownerId: string | null, count: number) => {
    const hosts = Array.from({ length: count }, (_, n) => `${ownerId ?? 'owner'}-${n}.site.test`)
    for (const host of hosts) bringOnline(host.replace('_', ''), ownerId)
  }
  return { names, holders, reserved, save, bringOnline, fill, clock }
}

describe('the places of names with certificates of their own', () => {
  it('are not all taken by one bot user, which is told so', async () => {
    const { names, holders, reserved, save, bringOnline, fill, clock } = await openNames()
    for (const host of ['away', 'cam', 'late']) await save(`${host}.site.test`)
    bringOnline('away.site.test', 'bot_b')
    holders.delete('away.site.test')
    expect(names.statusOf(reserved).job).toBeUndefined()
    fill('bot_a', 1_200)
    expect(names.statusOf(reserved).job).toEqual({
      startedAt: clock.now(),
      error: expect.stringMatching(/^bota-\d+\.site\.test: All 250 places of the account/),
      retriesAt: clock.now() + 60_000,
    })
    bringOnline('cam.site.test', 'bot_c')
    expect(names.served('cam.site.test')).toBeDefined()
    // Offline with a valid certificate, which is not the cause.
    expect(names.served('away.site.test')).toBeDefined()
    // A place that became free is used again.
    for (const host of [...holders.keys()].slice(0, 240)) holders.delete(host)
    await clock.advance(60_000)
    bringOnline('late.site.test', 'bot_a')
    expect(names.served('late.site.test')).toBeDefined()
    expect(names.statusOf(reserved).job).toBeUndefined()
  })

  it('go from larger accounts to smaller accounts, but not from names with certificates', async () => {
    const { names, holders, reserved, save, bringOnline, fill } = await openNames()
    for (const host of ['kept', 'away', 'cam']) await save(`${host}.site.test`)
    bringOnline('kept.site.test', null)
    bringOnline('away.site.test', 'bot_a')
    holders.delete('away.site.test')
    fill(null, 1_200)
    expect(names.statusOf(reserved).job?.error).toMatch(/^owner-\d+\.site\.test: All 1000 places/)
    fill('bot_b', 250)
    bringOnline('cam.site.test', 'bot_c')
    for (const host of ['kept', 'away', 'cam']) {
      expect(names.served(`${host}.site.test`), host).toBeDefined()
    }
  })

  it('are given up when a name goes to another account', async () => {
    const { names, holders, save, bringOnline, fill } = await openNames()
    for (const host of ['moved', 'cam']) await save(`${host}.site.test`)
    bringOnline('moved.site.test', 'bot_a')
    fill('bot_a', 249)
    holders.set('moved.site.test', { ownerId: 'bot_b' })
    names.sweep()
    expect(names.served('moved.site.test')).toBeDefined()
    bringOnline('cam.site.test', 'bot_a')
    expect(names.served('cam.site.test')).toBeDefined()
  })
})

describe('names with certificates of an earlier policy', () => {
  it('are not looked for again by each handshake, but after a sweep', async () => {
    const { names, holders, save } = await openNames('dns-01')
    holders.set('cam.site.test', { ownerId: null })
    expect(names.served('cam.site.test')).toBeUndefined()
    await save('cam.site.test')
    expect(names.served('cam.site.test')).toBeUndefined()
    names.sweep()
    expect(names.served('cam.site.test')).toBeDefined()
  })
})
