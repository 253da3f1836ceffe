import { X509Certificate } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { migrateSite } from '../../../src/gateway/cluster/migrate-site.ts'
import { PostgresSession } from '../../../src/gateway/cluster/postgres/postgres-session.ts'
import { Gateway } from '../../../src/gateway/gateway.ts'
import { challengeTarget } from '../../../src/gateway/records/domain-name.ts'
import type { ReservedDomain } from '../../../src/gateway/records/reserved-domain-store.ts'
import type { DatabaseAddress } from '../../../src/settings/database-url.ts'
import { AcmeServer } from '../../helpers/acme-server.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { startDnsServer } from '../../helpers/dns-server.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { PausableClock } from '../../helpers/pausable-clock.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import {
  bind,
  connectSdk,
  GATEWAY_DEFAULTS,
  type RunningGateway,
  type RunningOptions,
  startGateway,
} from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 86_400_000
const ANY_PORT = { host: '127.0.0.1', port: 0 }
const CNAME_BASE = 'gateway.test'

/** One gateway of the site, with what a test needs to take it out. */
interface Node {
  readonly at: RunningGateway
  readonly proxy: ChaosProxy
  readonly clock: PausableClock
}

const idOf = ({ at }: Node) => nodeIn(at.gateway)?.nodeId
const dnsOf = ({ at }: Node) => formatListenAddress(at.addresses.dns ?? ANY_PORT)
const servedBy = ({ at }: Node) => at.gateway.parts.certificates.domains.served('cam.shop.test')
const fingerprint = (served: { readonly certPem: string } | undefined) =>
  new X509Certificate(served?.certPem ?? '').fingerprint256
const leafOf = (node: Node) => fingerprint(servedBy(node))
const statusAt = ({ at }: Node, domain: ReservedDomain) =>
  at.gateway.parts.certificates.domains.statusOf(domain)

describe.skipIf(!hasPostgres)('certificates of an ACME authority at several gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** The authority, whose questions go to whoever `asked` names. */
  async function openAuthority() {
    const records: Record<string, string> = {}
    const asked = { dns: '', aheadMs: 0 }
    const acme = await AcmeServer.start({
      records: await startDnsServer(records),
      challenges: () => asked.dns,
      now: () => Date.now() + asked.aheadMs,
    })
    const options = {
      dnsListen: ANY_PORT,
      cnameBase: CNAME_BASE,
      acme: { directoryUrl: acme.directoryUrl, email: undefined },
    }
    const reserve = async ({ gateway }: RunningGateway): Promise<ReservedDomain> => {
      const { registrar } = gateway.parts
      const domain = await registrar.reserve({ domain: '*.shop.test', authority: 'letsencrypt' })
      records['_acme-challenge.shop.test'] = challengeTarget(domain, CNAME_BASE)
      return domain
    }
    return { acme, asked, options, reserve }
  }

  /** The same with certificates on demand: the authority connects to the ports that `ports` names. */
  async function openOnDemand() {
    const records: Record<string, string> = {}
    const ports = { http: 0, https: 0 }
    const asked = { dns: '', aheadMs: 0 }
    const dnsServer = await startDnsServer(records)
    const acme = await AcmeServer.start({
      records: dnsServer,
      challenges: () => asked.dns,
      ports: () => ports,
      now: Date.now,
    })
    const options = {
      dnsServers: [dnsServer],
      acme: { directoryUrl: acme.directoryUrl, email: undefined },
    }
    const reserve = () => Promise.reject(new Error('reserve a domain of the test'))
    return { acme, asked, options, reserve, records, ports }
  }

  type SiteAuthority = Pick<Awaited<ReturnType<typeof openAuthority>>, 'acme' | 'asked'> & {
    readonly options: RunningOptions
    readonly reserve: (at: RunningGateway) => Promise<ReservedDomain>
  }

  interface SiteOptions {
    readonly leaseMs?: number
    readonly count?: number
    readonly authority?: SiteAuthority
    readonly address?: DatabaseAddress
  }

  async function openSite({ leaseMs = 60_000, count = 2, ...given }: SiteOptions = {}) {
    const address = given.address ?? (await postgres.database())
    const authority: SiteAuthority = given.authority ?? (await openAuthority())
    const { acme, asked, options } = authority
    const cluster = GatewayCluster.open(address, leaseMs)
    const nodes: Node[] = []
    const add = async (): Promise<Node> => {
      const proxy = await ChaosProxy.start(address)
      const clock = new PausableClock()
      const authtoken = nodes[0]?.at.authtoken
      const at = await cluster.start({
        ...{ ...options, clock, through: proxy.address },
        ...(authtoken && { authtoken }),
      })
      const node = { at, proxy, clock }
      nodes.push(node)
      return node
    }
    while (nodes.length < count) await add()
    const server = { address, password: address.password, passwordPath: undefined }
    const query = async (sql: string) => {
      const session = await PostgresSession.open({ server, name: 'test' })
      try {
        return await session.query(sql)
      } finally {
        session.close()
      }
    }
    /** Who orders, and who does not. */
    const sides = async () => {
      const [row] = await query('SELECT node FROM certificates WHERE node IS NOT NULL')
      const orderer = nodes.find((node) => idOf(node) === row?.node)
      if (!orderer) throw new Error('nobody orders')
      const others = nodes.filter((node) => node !== orderer)
      return { orderer, other: others[0] as Node }
    }
    acme.onChallenge = async () => {
      asked.dns = dnsOf((await sides()).other)
    }
    const reserve = () => authority.reserve((nodes[0] as Node).at)
    const isOfAuthority = (node: Node) => {
      const { certPem = '' } = servedBy(node) ?? {}
      expect(certPem).not.toBe('')
      const authority = new X509Certificate(acme.caPem).publicKey
      expect(new X509Certificate(certPem).verify(authority)).toBe(true)
    }
    /** Waits until all serve the same of the authority, and gives it. */
    const agreed = (other = '') =>
      eventually(() => {
        for (const node of nodes) isOfAuthority(node)
        const [first = '', ...more] = nodes.map((node) => leafOf(node))
        for (const one of more) expect(one).toBe(first)
        expect(first).not.toBe(other)
        return first
      })
    return { ...authority, nodes, add, query, sides, reserve, agreed, server }
  }

  it('are ordered once, answered for by who did not order them, and served by all', async () => {
    const { acme, nodes, add, query, reserve, agreed } = await openSite()
    const domain = await reserve()
    const leaf = await agreed()
    // As docs/guides/several-gateways.md says: max_connections is set by it.
    await eventually(async () => {
      const others = 'datname = current_database() AND pid <> pg_backend_pid()'
      const rows = await query(`SELECT application_name FROM pg_stat_activity WHERE ${others}`)
      expect(rows).toHaveLength(4 * nodes.length)
    })
    expect(acme.orders.map(({ status }) => status)).toEqual(['valid'])
    for (const node of nodes) {
      const { job, endsAt, renewsAt } = statusAt(node, domain)
      expect(job).toBeUndefined()
      expect(endsAt).toBeGreaterThan(Date.now() + 89 * DAY_MS)
      expect(renewsAt).toBeGreaterThan(Date.now() + 59 * DAY_MS)
      // Keys are in no log of changes, and in no copy of the records.
      const replica = readFileSync(join(node.at.dataDir, 'replica.db'))
      const { keyPem = '' } = servedBy(node) ?? {}
      expect(replica.includes(keyPem.split('\n')[1] ?? '')).toBe(false)
    }
    await add()
    expect(await agreed()).toBe(leaf)
    expect([acme.orders.length, acme.accounts]).toEqual([1, 1])
  })

  it('on demand are ordered once, answered for by the other gateway, and served by all', async () => {
    const authority = await openOnDemand()
    const { acme, records, ports } = authority
    const { nodes, sides, query } = await openSite({ authority })
    const [one, two] = nodes as [Node, Node]
    acme.onChallenge = async () => {
      const { http, https } = (await sides()).other.at.addresses
      Object.assign(ports, { http: http.port, https: https.port })
      // Each gateway has an address of its own.
      const name = acme.orders.at(-1)?.identifiers[0]?.value ?? ''
      records[name] = http.host
    }
    const trust = (node: Node, name: string) =>
      eventually(() => {
        const served = node.at.gateway.parts.certificates.domains.served(name)
        const { publicKey } = new X509Certificate(acme.caPem)
        expect(new X509Certificate(served?.certPem ?? '').verify(publicKey)).toBe(true)
        return fingerprint(served)
      })
    for (const [at, type] of (['tls-alpn-01', 'http-01'] as const).entries()) {
      acme.offers = [type]
      records[`shop${at}.test`] = '127.0.0.1'
      await one.at.gateway.parts.registrar.reserve({ domain: `shop${at}.test` })
      const leaf = await trust(one, `shop${at}.test`)
      expect(await trust(two, `shop${at}.test`)).toBe(leaf)
    }
    // A device at one gateway; its visitors also come to the other.
    records['cam.site.test'] = '127.0.0.1'
    await bind(await connectSdk(one.at), 'cam.site.test')
    const leaf = await trust(one, 'cam.site.test')
    expect(await trust(two, 'cam.site.test')).toBe(leaf)
    expect(acme.orders.map(({ identifiers, status }) => [identifiers[0]?.value, status])).toEqual([
      ['shop0.test', 'valid'],
      ['shop1.test', 'valid'],
      ['cam.site.test', 'valid'],
    ])
    expect(acme.accounts).toBe(1)
    // Each order counts once for the budgets of the whole site.
    for (const { at } of nodes) {
      const { certificateOrders } = at.gateway.parts
      expect(certificateOrders.failuresOf('cam.site.test', Date.now())).toBe(0)
    }
    const { registrar, domains } = one.at.gateway.parts
    const shop = domains.find('shop0.test')
    if (shop) await registrar.release(shop)
    await eventually(async () => {
      const rows = await query('SELECT domain FROM certificates ORDER BY domain')
      expect(rows).toHaveLength(2)
    })
  })

  it('stay in use at all gateways after a change of the challenge, also at a new gateway', async () => {
    const { acme, nodes, add, reserve, agreed } = await openSite()
    const domain = await reserve()
    const leaf = await agreed()
    acme.refusal = 'closed today'
    const [one] = nodes as [Node]
    await one.at.gateway.parts.registrar.update(domain, { challenge: 'on-demand' })
    await eventually(() => {
      for (const { at } of nodes) {
        expect(at.gateway.parts.domains.get(domain.id)?.challenge).toBe('on-demand')
      }
    })
    await add()
    expect(await agreed()).toBe(leaf)
    expect(acme.orders).toHaveLength(1)
  })

  it('on demand wait after a failure, also if the domain is reserved again', async () => {
    const authority = await openOnDemand()
    const { acme, records, ports } = authority
    const { nodes } = await openSite({ authority, count: 1 })
    const [node] = nodes as [Node]
    acme.onChallenge = async () => {}
    records['shop.test'] = '127.0.0.1'
    Object.assign(ports, { http: 1, https: 1 })
    const { registrar } = node.at.gateway.parts
    const failed = (domain: ReservedDomain) =>
      eventually(() => {
        const { job } = statusAt(node, domain)
        expect(job?.error).toContain('tls-alpn-01 of shop.test failed')
        return job?.retriesAt
      })
    const first = await registrar.reserve({ domain: 'shop.test' })
    await failed(first)
    await registrar.release(first)
    const again = await registrar.reserve({ domain: 'shop.test' })
    expect(await failed(again)).toBeGreaterThan(Date.now() + 200_000)
    expect(acme.orders).toHaveLength(1)
  })

  it('are ordered by another gateway when the one that did stands still, and by one at a time', async () => {
    const { acme, nodes, reserve, agreed, sides, asked } = await openSite({ leaseMs: 10_000 })
    const isHeld = createDeferred<Node>()
    const goOn = createDeferred<void>()
    onTestFinished(() => goOn.resolve())
    acme.onChallenge = async () => {
      asked.dns = dnsOf((await sides()).orderer)
    }
    acme.onChecked = async (order) => {
      if (order > 0) return
      isHeld.resolve((await sides()).orderer)
      await goOn.promise
    }
    await reserve()
    const lost = await isHeld.promise
    lost.clock.pause()
    lost.proxy.freeze()
    const left = nodes.find((node) => node !== lost) as Node
    await eventually(() => expect(acme.orders[1]?.status).toBe('valid'))
    expect(acme.orders).toHaveLength(2)
    // It wakes up with its challenge answered, in the middle of an order that is not its own any more.
    expect(acme.orders[0]?.status).toBe('ready')
    lost.proxy.thaw()
    lost.clock.resume()
    goOn.resolve()
    const leaf = await agreed()
    expect(leafOf(left)).toBe(leaf)
    await eventually(() => expect(lost.at.logText()).toContain('took over the order'))
    expect(acme.orders.map(({ certificate }) => certificate !== undefined)).toEqual([false, true])
    expect(acme.accounts).toBe(1)
  })

  it('say what to do where the clock of a gateway, or the key of the account, is wrong', async () => {
    const { acme, asked, nodes, query, reserve, agreed } = await openSite({ count: 1 })
    const [node] = nodes as [Node]
    acme.onChallenge = async () => {
      asked.dns = dnsOf(node)
    }
    const jobOf = (domain: ReservedDomain) => statusAt(node, domain).job
    node.clock.stepWall(HOUR_MS)
    await query(
      "INSERT INTO site_secrets VALUES ('acme-account.key', '-----BEGIN PRIVATE KEY-----')",
    )
    const domain = await reserve()
    await eventually(() => expect(jobOf(domain)?.error).toContain('Use NTP'))
    node.clock.stepWall(-HOUR_MS)
    const sentence =
      'acme-account.key of the table site_secrets in PostgreSQL is not a valid private key: restore'
    await eventually(() => expect(jobOf(domain)?.error).toContain(sentence))
    expect([acme.orders.length, acme.accounts]).toEqual([0, 0])
    await query('DELETE FROM site_secrets')
    await query('UPDATE certificates SET next_at = 0, number = number + 1')
    await query('UPDATE certificate_head SET number = number + 1')
    await agreed()
    expect(acme.accounts).toBe(1)
  })

  it('are renewed once, with the account that was there', async () => {
    const { acme, asked, nodes, reserve, agreed, query } = await openSite()
    // Most of its life is over when it is issued.
    asked.aheadMs = -70 * DAY_MS
    await reserve()
    const before = await agreed()
    asked.aheadMs = 0
    await query('UPDATE certificates SET next_at = 0, number = number + 1')
    await query('UPDATE certificate_head SET number = number + 1')
    const after = await agreed(before)
    expect(after).not.toBe(before)
    expect([acme.orders.length, acme.accounts]).toEqual([2, 1])
    for (const node of nodes) isFresh(node)
  })

  const isFresh = (node: Node) => {
    const { validTo } = new X509Certificate(servedBy(node)?.certPem ?? '')
    expect(Date.parse(validTo)).toBeGreaterThan(Date.now() + 89 * DAY_MS)
  }

  it('are tried again by all together as seldom as by one, and say everywhere why', async () => {
    const { acme, nodes, reserve, query } = await openSite({ count: 3 })
    acme.refusal = 'too many orders for this name'
    const domain = await reserve()
    const failed = () =>
      eventually(() => {
        const jobs = nodes.map((node) => statusAt(node, domain).job)
        for (const job of jobs) expect(job?.error).toContain('too many orders for this name')
        return jobs
      })
    const [first, ...others] = await failed()
    expect(first?.retriesAt).toBeGreaterThan(Date.now() + 50_000)
    for (const job of others) expect(job).toEqual(first)
    expect(acme.refused).toBe(1)
    const retryAt = (n: number) =>
      nodes[n % nodes.length]?.at.gateway.parts.certificates.domains.retry(domain)
    for (let n = 0; n < 3; n += 1) {
      const { startedAt = 0 } = statusAt(nodes[0] as Node, domain).job ?? {}
      retryAt(n)
      await eventually(() => {
        for (const node of nodes) {
          const { job } = statusAt(node, domain)
          expect(job?.error).toBeDefined()
          expect(job?.startedAt).toBeGreaterThan(startedAt)
        }
      })
    }
    // Three out of turn in an hour, wherever they were asked for; each that was asked for counts there.
    const head = async () => Number((await query('SELECT number FROM certificate_head'))[0]?.number)
    const before = await head()
    for (let n = 0; n < 3; n += 1) retryAt(n)
    await eventually(async () => expect(await head()).toBeGreaterThanOrEqual(before + 3))
    const early =
      'SELECT cardinality(early) AS early, next_at > now_ms() AS waits FROM certificates'
    expect(await query(early)).toEqual([{ early: 3, waits: true }])
    expect(acme.refused).toBe(4)
    const told = nodes.map((node) => statusAt(node, domain).job?.failingSince)
    expect(new Set(told)).toEqual(new Set([first?.failingSince]))
  })

  it('are served without PostgreSQL, also by a gateway that starts without it', async () => {
    const { nodes, reserve, agreed, server, options } = await openSite()
    await reserve()
    const leaf = await agreed()
    const two = nodes[1] as Node
    two.proxy.refuse()
    two.proxy.cut()
    expect(leafOf(two)).toBe(leaf)
    const resolver = new Resolver({ timeout: 10_000, tries: 1 })
    resolver.setServers([dnsOf(two)])
    // Who hears that there is no such name asks nobody else.
    const answer = resolver.resolveTxt(`anything.acme.${CNAME_BASE}`)
    await expect(answer).rejects.toMatchObject({ code: 'ESERVFAIL' })
    await two.at.gateway.stop()
    const away = { ...server, address: { ...server.address, ...two.proxy.address } }
    const own = { host: '127.0.0.2', port: lastingAddress().port }
    const gateway = new Gateway({
      ...{ ...GATEWAY_DEFAULTS, ...options, dataDir: two.at.dataDir },
      ...{ httpListen: two.at.addresses.http, httpsListen: two.at.addresses.https },
      shared: { server: away, peerListen: own, peerAddress: own, joinTokenPath: undefined },
      log: captureLog().log,
    })
    onTestFinished(() => gateway.stop())
    await gateway.start()
    expect(fingerprint(gateway.parts.certificates.domains.served('cam.shop.test'))).toBe(leaf)
  })

  it('come along without a key of the account that is none', async () => {
    const alone = await startGateway({})
    await alone.gateway.stop()
    const damaged = '-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----\n'
    writeFileSync(join(alone.dataDir, 'acme-account.key'), damaged)
    const address = await postgres.database()
    const server = { address, password: address.password, passwordPath: undefined }
    const { log, text } = captureLog()
    await migrateSite({ folder: alone.dataDir, server, log, clock: systemClock })
    const session = await PostgresSession.open({ server, name: 'test' })
    onTestFinished(() => session.close())
    const names = await session.query('SELECT name FROM site_secrets')
    expect(names.map(({ name }) => name)).not.toContain('acme-account.key')
    expect(text()).toContain('the key of the ACME account is damaged')
  })

  it('come along when a gateway that was alone becomes the first of several', async () => {
    const authority = await openAuthority()
    const { acme, asked, options, reserve } = authority
    const alone = await startGateway(options)
    asked.dns = formatListenAddress(alone.addresses.dns ?? ANY_PORT)
    const domain = await reserve(alone)
    const { domains } = alone.gateway.parts.certificates
    await eventually(() => expect(domains.statusOf(domain).endsAt).toBeDefined())
    const leaf = fingerprint(domains.served('cam.shop.test'))
    await alone.gateway.stop()
    const address = await postgres.database()
    const server = { address, password: address.password, passwordPath: undefined }
    const { log } = captureLog()
    await migrateSite({ folder: alone.dataDir, server, log, clock: systemClock })
    const { agreed, query } = await openSite({ authority, address })
    expect(await agreed()).toBe(leaf)
    expect([acme.orders.length, acme.accounts]).toEqual([1, 1])
    const [secret] = await query("SELECT content FROM site_secrets WHERE name = 'acme-account.key'")
    expect(secret?.content).toBe(readFileSync(join(alone.dataDir, 'acme-account.key'), 'utf8'))
  })
})
