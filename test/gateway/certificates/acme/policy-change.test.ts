import { X509Certificate } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../../../src/base/listen-address.ts'
import type { Gateway } from '../../../../src/gateway/gateway.ts'
import { challengeTarget } from '../../../../src/gateway/records/domain-name.ts'
import type { ReservedDomain } from '../../../../src/gateway/records/reserved-domain-store.ts'
import { isTrusted, openAcmeSite, shake } from '../../../helpers/acme-site.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { bind, connectSdk, startGateway } from '../../../helpers/running-gateway.ts'

const ANY_PORT = { host: '127.0.0.1', port: 0 }
const CNAME_BASE = 'gateway.test'
const CAM = 'cam.site.test'
const ON_DEMAND = { authority: 'letsencrypt', challenge: 'on-demand' } as const
const DNS = { authority: 'letsencrypt', challenge: 'dns-01' } as const

/** A gateway with both challenges, and a device that has `cam.site.test` online below `*.site.test`. */
async function openBoth() {
  const dns = { address: '' }
  const site = await openAcmeSite({ dnsListen: ANY_PORT, cnameBase: CNAME_BASE }, () => dns.address)
  dns.address = formatListenAddress(site.addresses.dns ?? ANY_PORT)
  const wildcard = site.gateway.parts.domains.find('*.site.test') as ReservedDomain
  site.records['_acme-challenge.site.test'] = challengeTarget(wildcard, CNAME_BASE)
  site.records['*.site.test'] = '127.0.0.1'
  await bind(await connectSdk(site), CAM)
  const { registrar, acme, statusOf, gateway } = site
  const change = (policy: Parameters<typeof registrar.update>[1]) =>
    registrar.update(wildcard, policy)
  const trusts = (name = CAM) => isTrusted(site, name)
  const ready = (name = CAM) => eventually(async () => expect(await trusts(name)).toBe(true))
  /** Changes the policy while the authority refuses all orders. */
  const changeWithoutOrders = async (policy: Parameters<typeof registrar.update>[1]) => {
    acme.refusal = 'closed today'
    const refused = acme.refused
    const changed = await change(policy)
    await eventually(() => {
      // A name below the wildcard orders with its next visitor.
      leafOf(gateway)
      expect(acme.refused).toBeGreaterThan(refused)
    })
    return changed
  }
  /** Stops the gateway and starts another on its files, with the device. */
  const restart = async () => {
    await gateway.stop()
    const again = await startGateway({
      ...{ dataDir: site.dataDir, authtoken: site.authtoken, provisions: false },
      ...{ dnsListen: ANY_PORT, cnameBase: CNAME_BASE, dnsServers: site.dnsServers },
      acme: { directoryUrl: acme.directoryUrl, email: undefined },
    })
    await bind(await connectSdk(again), CAM)
    return { ...site, ...again }
  }
  return { ...site, wildcard, change, changeWithoutOrders, trusts, ready, restart, statusOf }
}

const leafOf = (gateway: Gateway, name = CAM) => {
  const { certPem = '' } = gateway.parts.certificates.domains.served(name) ?? {}
  return new X509Certificate(certPem).fingerprint256
}

describe('a wildcard whose challenge changes', () => {
  it('serves the certificate of dns-01 until a name has one on demand', async () => {
    const site = await openBoth()
    const { acme, gateway, trusts, ready, restart } = site
    await site.change(DNS)
    await ready('any.site.test')
    const before = leafOf(gateway)
    await site.changeWithoutOrders(ON_DEMAND)
    expect(leafOf(gateway)).toBe(before)
    expect(await trusts('any.site.test')).toBe(true)
    const again = await restart()
    expect(await isTrusted(again, CAM)).toBe(true)
    expect(await isTrusted(again, 'any.site.test')).toBe(true)
    acme.refusal = undefined
    Object.assign(site.ports, { http: again.addresses.http.port })
    Object.assign(site.ports, { https: again.addresses.https.port })
    again.gateway.parts.certificates.domains.retry(site.wildcard)
    await eventually(() => expect(leafOf(again.gateway)).not.toBe(before))
    expect(await shake(again.addresses.https, { servername: CAM, ca: acme.caPem })).toMatchObject({
      isTrusted: true,
      names: `DNS:${CAM}`,
    })
  })

  it('serves the certificates on demand until that of dns-01 is there', async () => {
    const site = await openBoth()
    const { acme, gateway, trusts, ready, restart } = site
    await site.change(ON_DEMAND)
    await ready()
    const before = leafOf(gateway)
    await site.changeWithoutOrders(DNS)
    expect(leafOf(gateway)).toBe(before)
    expect(await trusts()).toBe(true)
    const orders = acme.orders.length
    const again = await restart()
    expect(await isTrusted(again, CAM)).toBe(true)
    expect(leafOf(again.gateway)).toBe(before)
    expect(acme.orders).toHaveLength(orders)
  })

  it('is replaced by the certificate of dns-01 at once', async () => {
    const site = await openBoth()
    await site.change(ON_DEMAND)
    await site.ready()
    await site.change(DNS)
    await eventually(async () =>
      expect(
        await shake(site.addresses.https, { servername: CAM, ca: site.acme.caPem }),
      ).toMatchObject({ isTrusted: true, names: 'DNS:*.site.test' }),
    )
  })

  it('serves the earlier certificate after a change of the key type', async () => {
    const site = await openBoth()
    await site.change(DNS)
    await site.ready()
    await site.changeWithoutOrders({ privateKeyType: 'rsa' })
    expect(await site.trusts()).toBe(true)
    const again = await site.restart()
    expect(await isTrusted(again, CAM)).toBe(true)
  })

  it('serves the gateway’s CA at once if that is the choice', async () => {
    const site = await openBoth()
    await site.change(ON_DEMAND)
    await site.ready()
    await site.change({ authority: 'gateway' })
    await eventually(async () => expect(await site.trusts()).toBe(false))
  })
})

describe('a single name and the wildcard above it', () => {
  it('serves the certificate of the wildcard until its own is there', async () => {
    const site = await openBoth()
    await site.change(DNS)
    await site.ready('shop.site.test')
    site.acme.refusal = 'closed today'
    const single = await site.registrar.reserve({ domain: 'shop.site.test', ...DNS })
    await site.failed(single)
    expect(await site.trusts('shop.site.test')).toBe(true)
  })

  it('keeps the certificate on demand that the name had below the wildcard', async () => {
    const site = await openBoth()
    await site.change(ON_DEMAND)
    await site.ready()
    site.acme.refusal = 'closed today'
    await site.failed(await site.registrar.reserve({ domain: CAM, ...DNS }))
    expect(await site.trusts()).toBe(true)
    expect(await isTrusted(await site.restart(), CAM)).toBe(true)
  })

  it('serves nothing of a domain that was deleted and reserved again', async () => {
    const site = await openBoth()
    site.records['shop.test'] = '127.0.0.1'
    const first = await site.registrar.reserve({ domain: 'shop.test', ...ON_DEMAND })
    await site.ready('shop.test')
    site.acme.refusal = 'closed today'
    await site.registrar.release(first)
    await site.failed(await site.registrar.reserve({ domain: 'shop.test', ...ON_DEMAND }))
    expect(await site.trusts('shop.test')).toBe(false)
  })
})
