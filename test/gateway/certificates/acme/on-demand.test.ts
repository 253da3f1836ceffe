import { once } from 'node:events'
import { cpSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../../../src/base/deferred.ts'
import { formatListenAddress } from '../../../../src/base/listen-address.ts'
import { challengeTarget } from '../../../../src/gateway/records/domain-name.ts'
import type { ReservedDomain } from '../../../../src/gateway/records/reserved-domain-store.ts'
import { isTrusted, openAcmeSite, shake } from '../../../helpers/acme-site.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { publicRequest } from '../../../helpers/public-request.ts'
import {
  bind,
  connectSdk,
  type RunningGateway,
  startGateway,
} from '../../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const ANY_PORT = { host: '127.0.0.1', port: 0 }
const TOKEN_PATH = '/.well-known/acme-challenge/'

const ask = ({ addresses }: RunningGateway, host: string, path: string) =>
  publicRequest({ ingress: `http://127.0.0.1:${addresses.http.port}`, host, path })

describe('a certificate on demand', () => {
  it.each(['tls-alpn-01', 'http-01'] as const)('comes by %s', async (type) => {
    const site = await openAcmeSite()
    const { acme, records, registrar, statusOf } = site
    acme.offers = [type]
    records['shop.test'] = '127.0.0.1'
    const domain = await registrar.reserve({ domain: 'shop.test' })
    expect(domain).toMatchObject({ authority: 'letsencrypt', challenge: 'on-demand' })
    await eventually(async () => expect(await isTrusted(site, 'shop.test')).toBe(true))
    expect(acme.orders).toMatchObject([{ status: 'valid', type }])
    expect(statusOf(domain)).toMatchObject({ job: undefined, renewsAt: expect.any(Number) })
  })

  it('comes for a name that a device has online below a wildcard, and for no other name', async () => {
    const site = await openAcmeSite()
    const { acme, records, addresses, gateway } = site
    records['*.site.test'] = '127.0.0.1'
    const session = await connectSdk(site)
    // No public address: the reason is told with the name, and the own CA serves it.
    await bind(session, 'deep.cam.site.test')
    const wildcard = gateway.parts.domains.find('*.site.test') as ReservedDomain
    const job = await site.failed(wildcard)
    expect(job?.error).toMatch(/^deep\.cam\.site\.test: DNS has no address/)
    const { names } = await shake(addresses.https, { servername: 'deep.cam.site.test' })
    expect(names).toBe('DNS:*.cam.site.test')
    await bind(session, 'cam.site.test')
    await eventually(async () => expect(await isTrusted(site, 'cam.site.test')).toBe(true))
    const { domains } = gateway.parts.certificates
    for (let n = 0; n < 10_000; n += 1) domains.served(`n${n}.site.test`)
    for (let n = 0; n < 20; n += 1) {
      const servername = `n${n}.${n % 2 === 0 ? 'site' : 'unknown'}.test`
      expect(await shake(addresses.https, { servername, ca: acme.caPem })).toMatchObject({
        isTrusted: false,
      })
    }
    expect(acme.orders.map(({ identifiers }) => identifiers[0]?.value)).toEqual(['cam.site.test'])
  })

  it('is answered for at its own path and name alone, while visitors are served as before', async () => {
    const site = await openAcmeSite()
    const { acme, addresses, records, registrar, gateway } = site
    acme.offers = ['http-01']
    for (const name of ['shop.test', 'cam.site.test']) records[name] = '127.0.0.1'
    const isHeld = createDeferred<void>()
    const goOn = createDeferred<void>()
    acme.onChallenge = async () => {
      isHeld.resolve()
      await goOn.promise
    }
    await registrar.reserve({ domain: 'shop.test' })
    await isHeld.promise
    const path = `${TOKEN_PATH}${acme.orders[0]?.token}`
    const answer = await ask(site, 'SHOP.test', path)
    expect(answer).toMatchObject({ status: 200, text: expect.stringMatching(/^[\w-]+\.[\w-]+$/) })
    // Counted before the authority validates, so that a crash now is remembered.
    expect(gateway.parts.certificateOrders.failuresOf('shop.test', Date.now())).toBe(1)
    expect(await shake(addresses.https, { servername: 'shop.test' })).toMatchObject({
      names: 'DNS:shop.test',
    })
    const others = [
      ['cam.site.test', path],
      ['shop.test', `${path}x`],
      ['shop.test', `${path}/`],
      ['shop.test', `${path}?a`],
      ['shop.test', TOKEN_PATH],
      ['shop.test', '/'],
    ]
    for (const [host = '', other = ''] of others) {
      expect((await ask(site, host, other)).status, `${host}${other}`).toBe(404)
    }
    goOn.resolve()
    await eventually(async () => expect(await isTrusted(site, 'shop.test')).toBe(true))
    expect((await ask(site, 'shop.test', path)).status).toBe(404)
  })

  it('leaves tokens that are not its own to the device', async () => {
    const site = await openAcmeSite()
    const upstream = createServer((request, response) => response.end(`device ${request.url}`))
    upstream.listen(0, '127.0.0.1')
    await once(upstream, 'listening')
    onTestFinished(() => void upstream.close())
    const session = await connectSdk(site)
    const builder = session.httpEndpoint().domain('cam.site.test').scheme('HTTP')
    const { port } = upstream.address() as AddressInfo
    await builder.listenAndForward(`http://127.0.0.1:${port}`)
    const path = `${TOKEN_PATH}of-the-device`
    expect((await ask(site, 'cam.site.test', path)).text).toBe(`device ${path}`)
  })

  it('shows the certificate of a challenge to the authority alone', async () => {
    const site = await openAcmeSite()
    const { acme, addresses, records, registrar } = site
    acme.offers = ['tls-alpn-01']
    records['shop.test'] = '127.0.0.1'
    const isHeld = createDeferred<void>()
    const goOn = createDeferred<void>()
    acme.onChallenge = async () => {
      isHeld.resolve()
      await goOn.promise
    }
    await registrar.reserve({ domain: 'shop.test' })
    await registrar.reserve({ domain: 'two.test', authority: 'gateway' })
    await isHeld.promise
    const hello = (servername: string, ...ALPNProtocols: string[]) =>
      shake(addresses.https, { servername, ALPNProtocols })
    expect(await hello('shop.test', 'acme-tls/1')).toMatchObject({ protocol: 'acme-tls/1' })
    for (const name of ['two.test', 'unknown.test']) {
      expect(await hello(name, 'acme-tls/1')).toHaveProperty('error')
    }
    expect(await hello('shop.test', 'acme-tls/1', 'h2')).toMatchObject({ protocol: 'h2' })
    expect(await hello('shop.test', 'http/1.1')).toMatchObject({ protocol: 'http/1.1' })
    goOn.resolve()
    await eventually(async () => expect(await isTrusted(site, 'shop.test')).toBe(true))
    expect(await hello('shop.test', 'acme-tls/1')).toHaveProperty('error')
  })

  it('is not ordered before DNS leads the name here, and says why', async () => {
    const site = await openAcmeSite({ publicNames: [{ host: 'gw.test', port: undefined }] })
    const { acme, records, registrar, failed, gateway } = site
    records['gw.test'] = '127.0.0.9'
    const domain = await registrar.reserve({ domain: 'shop.test' })
    const missing = await failed(domain)
    expect(missing?.error).toContain('DNS has no address for shop.test (ENOTFOUND)')
    expect(missing?.retriesAt).toBeGreaterThan(Date.now() + 20_000)
    records['shop.test'] = '192.0.2.7'
    const { domains } = gateway.parts.certificates
    domains.retry(domain)
    await eventually(() =>
      expect(site.statusOf(domain).job?.error).toContain('DNS leads shop.test to 192.0.2.7'),
    )
    expect(site.statusOf(domain).job?.error).toContain('GATEWAY_PUBLIC_NAMES')
    expect(acme.accounts + acme.orders.length).toBe(0)
    // One of the gateway's own names.
    records['shop.test'] = '127.0.0.9'
    acme.onChallenge = () => void Object.assign(records, { 'shop.test': '127.0.0.1' })
    domains.retry(domain)
    await eventually(async () => expect(await isTrusted(site, 'shop.test')).toBe(true))
    expect(acme.orders).toHaveLength(1)
  })

  it('is tried over the other port after a failure', async () => {
    const site = await openAcmeSite()
    const { acme, records, ports, registrar, failed, gateway } = site
    records['shop.test'] = '127.0.0.1'
    const { https } = ports
    ports.https = 1
    const domain = await registrar.reserve({ domain: 'shop.test' })
    const job = await failed(domain)
    expect(job?.error).toContain('tls-alpn-01 of shop.test failed: connect ECONNREFUSED')
    expect(job?.retriesAt).toBeGreaterThan(Date.now() + 200_000)
    gateway.parts.certificates.domains.retry(domain)
    await eventually(() => expect(acme.orders[1]?.status).toBe('valid'))
    expect(acme.orders.map(({ type }) => type)).toEqual(['tls-alpn-01', 'http-01'])
    ports.https = https
    await eventually(async () => expect(await isTrusted(site, 'shop.test')).toBe(true))
  })

  it.each([
    ['a certificate for another name', { names: ['bank.test'] }, /not valid for shop.test/],
    ['an authorization of another name', { identifier: 'bank.test' }, /was not ordered/],
    ['a token that is a path', { token: '../../token' }, /token of the authority is not valid/],
  ] as const)('is refused if the authority gives %s', async (_what, forge, reason) => {
    const site = await openAcmeSite()
    const { acme, addresses, records, registrar, failed } = site
    acme.forge = forge
    records['shop.test'] = '127.0.0.1'
    const domain = await registrar.reserve({ domain: 'shop.test' })
    const job = await failed(domain)
    expect(job?.error).toMatch(reason)
    // Remembered, so that the next attempt waits.
    await eventually(() => {
      expect(site.statusOf(domain).job?.retriesAt).toBeGreaterThan(Date.now() + 200_000)
    })
    expect(acme.orders).toHaveLength(1)
    expect(await shake(addresses.https, { servername: 'shop.test' })).toMatchObject({
      names: 'DNS:shop.test',
    })
  })

  it('is not ordered again at once by a gateway that was killed in the middle of an order', async () => {
    const site = await openAcmeSite()
    const { acme, records, registrar, dataDir } = site
    records['shop.test'] = '127.0.0.1'
    const isHeld = createDeferred<void>()
    acme.onChallenge = () => {
      isHeld.resolve()
      return new Promise(() => {})
    }
    const domain = await registrar.reserve({ domain: 'shop.test' })
    await isHeld.promise
    // What a kill leaves on the disk.
    const left = join(temporaryFolder(), 'gateway')
    cpSync(dataDir, left, { recursive: true })
    rmSync(join(left, 'lock'), { recursive: true, force: true })
    const { gateway } = await startGateway({
      ...{ dataDir: left, provisions: false, authtoken: site.authtoken },
      ...{
        acme: { directoryUrl: acme.directoryUrl, email: undefined },
        dnsServers: site.dnsServers,
      },
    })
    const statusOf = () => gateway.parts.certificates.domains.statusOf(domain)
    await eventually(() => expect(statusOf().job?.error).toContain('ended before the order'))
    expect(statusOf().job?.retriesAt).toBeGreaterThan(Date.now() + 200_000)
    expect(acme.orders).toHaveLength(1)
  })

  it('is not ordered for a name below a valid wildcard, which serves it', async () => {
    const dns = { address: '' }
    const site = await openAcmeSite(
      { dnsListen: ANY_PORT, cnameBase: 'gateway.test' },
      () => dns.address,
    )
    const { acme, addresses, records, registrar, statusOf } = site
    dns.address = formatListenAddress(addresses.dns ?? ANY_PORT)
    const wildcard = await registrar.reserve({ domain: '*.shop.test', authority: 'letsencrypt' })
    expect(wildcard.challenge).toBe('dns-01')
    records['_acme-challenge.shop.test'] = challengeTarget(wildcard, 'gateway.test')
    records['cam.shop.test'] = '127.0.0.1'
    site.gateway.parts.certificates.domains.retry(wildcard)
    await eventually(async () => expect(await isTrusted(site, 'any.shop.test')).toBe(true))
    // A name that has the own CA by choice keeps it.
    await registrar.reserve({ domain: 'own.shop.test', authority: 'gateway' })
    await eventually(async () => {
      const { names } = await shake(addresses.https, { servername: 'own.shop.test' })
      expect(names).toBe('DNS:own.shop.test')
    })
    const orders = acme.orders.length
    const policy = { authority: 'letsencrypt', challenge: 'on-demand' } as const
    const domain = await registrar.reserve({ domain: 'cam.shop.test', ...policy })
    await eventually(() => expect(statusOf(domain)).toMatchObject({ job: undefined }))
    expect(statusOf(domain).renewsAt).toBe(statusOf(wildcard).renewsAt)
    expect(await isTrusted(site, 'cam.shop.test')).toBe(true)
    expect(acme.orders).toHaveLength(orders)
  })
})
