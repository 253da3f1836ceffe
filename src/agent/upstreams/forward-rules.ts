import { lookup } from 'node:dns/promises'
import { networkInterfaces } from 'node:os'
import ipaddr from 'ipaddr.js'
import { AppError, StartError } from '../../base/app-error.ts'
import { NEVER_DIALLED } from '../../base/cidr.ts'
import { withDeadline } from '../../base/deadline.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import { LOCALHOST_ADDRESSES } from '../../base/net/localhost.ts'
import { type ForwardTarget, formatForwardTarget, parseForwardTarget } from './forward-target.ts'

type Address = ipaddr.IPv4 | ipaddr.IPv6
type Range = [Address, number]

/** An entry of the allow list: what it matches, and the one port it is for, if any. */
interface AllowRule {
  readonly host: string | undefined
  readonly range: Range | undefined
  readonly port: number | undefined
}

const DENIED = NEVER_DIALLED.map((text) => ({ text, range: ipaddr.parseCIDR(text) }))
const DENIED_NAMES = new Set(['metadata', 'metadata.google.internal', 'instance-data'])
/** IPv6 forms that carry an IPv4 address: NAT64 (RFC 6052) and 6to4 (RFC 3056). */
const CARRIERS = [
  { range: ipaddr.IPv6.parseCIDR('64:ff9b::/96'), firstByte: 12 },
  { range: ipaddr.IPv6.parseCIDR('2002::/16'), firstByte: 2 },
]
const LOOKUP_MS = 3_000

export interface ForwardRulesOptions {
  /** Hosts or CIDRs, each with an optional `:port`. */
  readonly allow: readonly string[]
  /** The agent's own listeners, asked at each check: a port may not be known before. */
  readonly ownAddresses: () => readonly ListenAddress[]
  /** All addresses of a name; none when it cannot be resolved. */
  readonly resolve?: (name: string) => Promise<readonly string[]>
}

/**
 * Where tunnels may lead: this machine's loopback, and what the owner of the device lists.
 * Else the device would be a door into its network for everybody who holds an API token.
 */
export class ForwardRules {
  readonly #allow: readonly AllowRule[]
  readonly #ownAddresses: ForwardRulesOptions['ownAddresses']
  readonly #resolve: (name: string) => Promise<readonly string[]>

  constructor({ allow, ownAddresses, resolve = resolveName }: ForwardRulesOptions) {
    this.#allow = allow.map(parseRule)
    this.#ownAddresses = ownAddresses
    this.#resolve = resolve
  }

  /**
   * The addresses of a target, all of which may be dialled. Throws AppError `forwards-to-not-allowed`,
   * which names the rule. A name is resolved each time; one that cannot be resolved now leads nowhere.
   */
  async check(target: ForwardTarget): Promise<readonly string[]> {
    const { host, port } = target
    if (DENIED_NAMES.has(host)) throw refused(target, `${host} is never forwarded to`)
    const literal = ipaddr.isValid(host) ? plain(ipaddr.parse(host)) : undefined
    if (literal) {
      this.#checkAddress(target, literal, this.#allows(literal, port))
      return [host]
    }
    const isListed = host === 'localhost' || this.#allow.some((rule) => fits(rule, host, port))
    if (!isListed) {
      throw refused(
        target,
        `${host} is not in AGENT_FORWARD_ALLOW; names must be listed themselves`,
      )
    }
    // The resolver may say anything about localhost; it is loopback for whoever dials it.
    const addresses = host === 'localhost' ? LOCALHOST_ADDRESSES : await this.#resolve(host)
    for (const address of addresses) this.#checkAddress(target, plain(ipaddr.parse(address)), true)
    return addresses
  }

  #checkAddress(target: ForwardTarget, address: Address, isAllowed: boolean): void {
    const denied = DENIED.find(({ range }) => matches(address, range))
    if (denied) throw refused(target, `${denied.text} is never forwarded to`)
    if (this.#isOwn(address, target.port)) {
      throw refused(target, `port ${target.port} is the agent's own`)
    }
    if (!isAllowed) throw refused(target, `${address} is not in AGENT_FORWARD_ALLOW`)
  }

  #allows(address: Address, port: number): boolean {
    if (address.range() === 'loopback') return true
    return this.#allow.some(
      ({ range, port: only }) =>
        range && matches(address, range) && (only === undefined || only === port),
    )
  }

  #isOwn(address: Address, port: number): boolean {
    if (!this.#ownAddresses().some((own) => own.port === port)) return false
    return address.range() === 'loopback' || isOfThisMachine(address)
  }
}

function parseRule(text: string): AllowRule {
  const [, bracketed, bare, digits] = /^(?:\[(.+)\]|([^[\]]+?))(?::(\d{1,5}))?$/.exec(text) ?? []
  // An IPv6 address without brackets ends in what looks like a port.
  if (ipaddr.isValid(text) || ipaddr.isValidCIDR(text)) return ruleOf(text, text, undefined)
  const port = digits === undefined ? undefined : Number(digits)
  return ruleOf(text, bracketed ?? bare ?? '', port)
}

function ruleOf(text: string, what: string, port: number | undefined): AllowRule {
  if (ipaddr.isValidCIDR(what)) return { host: undefined, range: ipaddr.parseCIDR(what), port }
  const target = parseForwardTarget(`${what.includes(':') ? `[${what}]` : what}:${port ?? 1}`)
  if (!target || what === '') {
    throw new StartError(`AGENT_FORWARD_ALLOW: ${text} is no host or CIDR with an optional :port.`)
  }
  if (!ipaddr.isValid(what)) return { host: target.host, range: undefined, port }
  const address = ipaddr.parse(what)
  return { host: undefined, range: [address, address.kind() === 'ipv4' ? 32 : 128], port }
}

function fits({ host, port: only }: AllowRule, name: string, port: number): boolean {
  return host === name && (only === undefined || only === port)
}

async function resolveName(host: string): Promise<string[]> {
  try {
    const found = await withDeadline(lookup(host, { all: true }), LOOKUP_MS, 'resolving')
    return found.map(({ address }) => address)
  } catch {
    return []
  }
}

/** The address that is meant: IPv4 where it is only wrapped in IPv6. */
function plain(address: Address): Address {
  if (!(address instanceof ipaddr.IPv6)) return address
  if (address.isIPv4MappedAddress()) return address.toIPv4Address()
  const carrier = CARRIERS.find(({ range }) => address.match(range))
  if (!carrier) return address
  const { firstByte } = carrier
  return new ipaddr.IPv4(address.toByteArray().slice(firstByte, firstByte + 4))
}

function matches(address: Address, [range, bits]: Range): boolean {
  return address.kind() === range.kind() && address.match(range as never, bits)
}

function isOfThisMachine(address: Address): boolean {
  try {
    const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
    return own.some((entry) => entry.address === address.toString())
  } catch {
    // A sandbox without netlink: whoever may not look is not told which addresses are ours.
    return true
  }
}

function refused(target: ForwardTarget, rule: string): AppError {
  return new AppError(
    'forwards-to-not-allowed',
    `The device does not forward to ${formatForwardTarget(target)}: ${rule}.`,
    { errors: [{ pointer: '/forwards_to', detail: rule }] },
  )
}
