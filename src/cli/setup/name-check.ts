import { Resolver } from 'node:dns/promises'
import { isIP, isIPv6 } from 'node:net'
import ipaddr from 'ipaddr.js'
import { bad, type Finding, good } from '../doctor/finding.ts'

const TIMEOUT_MS = 2_000
const TRIES = 2
/** Asked for in place of the star: only a wildcard record answers for it. */
const PROBE_LABEL = 'dns-check'
const UNKNOWN_ADDRESS = '<public address of this server>'

/** A record to add at the DNS provider. */
export interface DnsRecord {
  readonly name: string
  readonly type: 'A' | 'AAAA' | 'CNAME' | 'NS'
  readonly value: string
}

/** Result for one name, with the records that are missing. */
export interface NameFinding {
  readonly finding: Finding
  readonly records: readonly DnsRecord[]
  /** Addresses of the name that are not known to be of this server. */
  readonly foreign: readonly string[]
}

export interface NameCheckOptions {
  /** `address` or `address:port`; empty: the resolvers of this machine. */
  readonly dnsServers: readonly string[]
  /** Addresses of this machine. */
  readonly machineAddresses: readonly string[]
  /** Addresses from the settings. Without a public address, records have these. */
  readonly publicAddresses: readonly string[]
  /** In a cluster, a name also leads to the other gateways. */
  readonly isCluster: boolean
}

/** Checks in DNS that names lead to this server. */
export class NameCheck {
  readonly #options: NameCheckOptions
  readonly #resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES })

  constructor(options: NameCheckOptions) {
    this.#options = options
    if (options.dnsServers.length > 0) this.#resolver.setServers(options.dnsServers)
  }

  /** Address records of the public name of the gateway. `proven`: foreign addresses that lead here, too. */
  publicName(name: string, proven: readonly string[] = []): Promise<NameFinding> {
    return this.#leadsHere(name, name, this.#addressRecords(name), proven)
  }

  /** The wildcard record of a domain. */
  wildcard(domain: string, target: string, proven: readonly string[] = []): Promise<NameFinding> {
    const record: DnsRecord = { name: domain, type: 'CNAME', value: target }
    return this.#leadsHere(domain, domain.replace(/^\*/, PROBE_LABEL), [record], proven)
  }

  /** CNAME record of a challenge. */
  async cname(name: string, target: string): Promise<NameFinding> {
    const record: DnsRecord = { name, type: 'CNAME', value: target }
    return recordFinding(record, await found(() => this.#resolver.resolveCname(name)))
  }

  /** Delegation of a zone to this gateway. */
  async delegation(zone: string, server: string): Promise<NameFinding> {
    const record: DnsRecord = { name: zone, type: 'NS', value: server }
    return recordFinding(record, await found(() => this.#resolver.resolveNs(zone)))
  }

  async #leadsHere(
    name: string,
    asked: string,
    records: readonly DnsRecord[],
    proven: readonly string[],
  ): Promise<NameFinding> {
    const { machineAddresses, publicAddresses, isCluster } = this.#options
    const check = `dns ${name}`
    const [four, six] = await Promise.all([
      found(() => this.#resolver.resolve4(asked)),
      found(() => this.#resolver.resolve6(asked)),
    ])
    const addresses = [...four.values, ...six.values].map(normalAddress)
    if (addresses.length === 0) {
      const finding = bad(check, `no address found (${four.error})`, 'Add the DNS record below.')
      return { finding, records, foreign: [] }
    }
    const known = new Set([...publicAddresses, ...machineAddresses, ...proven].map(normalAddress))
    const foreign = addresses.filter((address) => !known.has(address))
    const isGood = foreign.length === 0 || (isCluster && foreign.length < addresses.length)
    if (isGood)
      return { finding: good(check, `leads to ${addresses.join(', ')}`), records: [], foreign }
    const step = isCluster ? 'Add the DNS record below.' : 'Correct the DNS record as below.'
    const remedy = `${step} If ${foreign[0]} is an address of this server, for example behind NAT, use --address ${foreign[0]}.`
    const finding = bad(
      check,
      `leads to ${addresses.join(', ')}, and ${foreign.join(', ')} is not an address of this server`,
      remedy,
    )
    return { finding, records, foreign }
  }

  #addressRecords(name: string): DnsRecord[] {
    const { machineAddresses, publicAddresses } = this.#options
    const open = [...publicAddresses, ...machineAddresses].filter(isPublicAddress)
    const usable = open.length > 0 ? open : publicAddresses
    const addresses = usable.length > 0 ? [...new Set(usable)] : [UNKNOWN_ADDRESS]
    return addresses.map((value) => ({ name, type: isIPv6(value) ? 'AAAA' : 'A', value }))
  }
}

interface Found {
  readonly values: readonly string[]
  /** Code of the resolver if nothing was found. */
  readonly error: string
}

async function found(ask: () => Promise<readonly string[]>): Promise<Found> {
  try {
    return { values: await ask(), error: '' }
  } catch (error) {
    return { values: [], error: (error as NodeJS.ErrnoException).code ?? 'EUNKNOWN' }
  }
}

function recordFinding(record: DnsRecord, { values, error }: Found): NameFinding {
  const check = `dns ${record.name}`
  const normal = values.map(normalName)
  if (normal.includes(normalName(record.value))) {
    return { finding: good(check, `${record.type} ${record.value}`), records: [], foreign: [] }
  }
  const flaw =
    values.length === 0
      ? `no ${record.type} record found (${error})`
      : `the ${record.type} record is ${normal.join(', ')}, not ${record.value}`
  return { finding: bad(check, flaw, 'Add the DNS record below.'), records: [record], foreign: [] }
}

/** DNS names compare without case, and with or without the dot of the root. */
const normalName = (name: string) => name.toLowerCase().replace(/\.$/, '')

const normalAddress = (address: string) =>
  isIP(address) === 0 ? address : ipaddr.parse(address).toNormalizedString()

/** Kinds of addresses that other networks cannot reach. */
const LOCAL_RANGES: ReadonlySet<string> = new Set([
  ...['private', 'uniqueLocal', 'carrierGradeNat', 'linkLocal', 'loopback', 'unspecified'],
])

function isPublicAddress(address: string): boolean {
  return !LOCAL_RANGES.has(ipaddr.parse(address).range())
}
