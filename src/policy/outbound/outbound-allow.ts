import type { Duplex } from 'node:stream'
import { fileURLToPath } from 'node:url'
import ipaddr from 'ipaddr.js'
import {
  type Address,
  type AddressRanges,
  neverDialled,
  parseAddress,
  reachedAddress,
} from '../../base/net/network.ts'
import type { AddressTable } from '../exchange/address-tables.ts'
import type { Connection } from '../exchange/policy-exchange.ts'
import type { PolicySecrets } from '../exchange/policy-secrets.ts'
import type { Account } from '../expression/account.ts'

type Range = readonly [Address, number]

/**
 * An entry of GATEWAY_OUTBOUND_ALLOW: a name or address range with its port, or a file on the gateway's
 * machine.
 */
export type AllowEntry =
  | ({ readonly port: number | undefined } & (
      | { readonly kind: 'name'; readonly name: string }
      | { readonly kind: 'range'; readonly range: Range }
    ))
  /** A path that ends with a slash is that of a folder, and stands for all below it. */
  | { readonly kind: 'file'; readonly path: string }

/** Target of a policy's connection. */
export interface DialTarget {
  /** As the URL has it, without brackets. */
  readonly host: string
  /** Resolved address; the host itself if it is an address. */
  readonly address: string
  readonly port: number
}

const ENTRY = /^(?:\[([^[\]]+)\]|([^[\]:]+))(?::(\d{1,5}))?$/

/** Reads an entry: a name, an address or a CIDR, each with an optional `:port`, or a `file:` URL. */
export function parseAllowEntry(text: string): AllowEntry | { readonly problem: string } {
  if (/^file:/i.test(text)) {
    const path = filePath(text)
    return path === undefined ? NO_FILE : { kind: 'file', path }
  }
  // A bare IPv6 address ends with text that looks like a port.
  const isBareIpv6 = ipaddr.IPv6.isValid(text) || ipaddr.IPv6.isValidCIDR(text)
  const [, bracketed, bare, digits] = isBareIpv6 ? [text, text] : (ENTRY.exec(text) ?? [])
  const what = (bracketed ?? bare ?? '').toLowerCase()
  const port = digits === undefined ? undefined : Number(digits)
  // The zone of an address means something on one machine only.
  if (what === '' || what.includes('%')) return NO_ENTRY
  if (port === 0 || (port ?? 0) > 65_535)
    return { problem: 'a port must be a number from 1 to 65535' }
  const range = parseRange(what)
  if (range === undefined) return bracketed === undefined ? parseName(what, port) : NO_ENTRY
  return 'problem' in range ? range : { kind: 'range', range: range.range, port }
}

/**
 * Whether an entry allows the address. A wide range such as `0.0.0.0/0` covers only public addresses:
 * private, shared and loopback addresses need an entry that begins within their range. A name may also
 * resolve to private and shared addresses; only `localhost` may use loopback. Addresses of `neverDialled` are
 * always refused.
 */
export function mayDial(
  entries: readonly AllowEntry[],
  { host, address: text, port }: DialTarget,
): boolean {
  const parsed = parseAddress(text)
  if (!parsed) return false
  const address = reachedAddress(parsed)
  if (neverDialled(address)) return false
  const kind = address.range()
  return entries.some((entry) => {
    if (entry.kind === 'file') return false
    if (entry.port !== undefined && entry.port !== port) return false
    if (entry.kind === 'range') {
      const [base] = entry.range
      return contains(entry.range, address) && (kind === 'unicast' || base.range() === kind)
    }
    return entry.name === host && (entry.name === 'localhost') === (kind === 'loopback')
  })
}

/** True when an entry has leave for the file with this path. */
export function mayRead(entries: readonly AllowEntry[], path: string): boolean {
  return entries.some((entry) => {
    if (entry.kind !== 'file') return false
    return entry.path.endsWith('/') ? path.startsWith(entry.path) : path === entry.path
  })
}

/** The path of a `file:` URL without `..`; undefined for other machines. */
export function filePath(url: string): string | undefined {
  try {
    return fileURLToPath(url)
  } catch {
    return undefined
  }
}

const NO_FILE = {
  problem: 'must be file:///path for a file, or file:///path/ for a directory',
}
const NO_ENTRY = { problem: 'not a host, address or CIDR with optional :port' }

function parseRange(what: string): { range: Range } | { problem: string } | undefined {
  if (parseAddress(what)) return checkRange(`${what}/${what.includes(':') ? 128 : 32}`)
  return what.includes('/') ? checkRange(what) : undefined
}

function checkRange(cidr: string): { range: Range } | { problem: string } {
  if (!parseAddress(cidr.replace(/\/.*/, '')) || !ipaddr.isValidCIDR(cidr)) return NO_ENTRY
  const [base, bits] = ipaddr.parseCIDR(cidr)
  const network = (base.kind() === 'ipv4' ? ipaddr.IPv4 : ipaddr.IPv6).networkAddressFromCIDR(cidr)
  if (network.toString() !== base.toString()) {
    return { problem: `a CIDR must start with its lowest address: ${network}/${bits}` }
  }
  if (reachedAddress(base) !== base) {
    return { problem: 'write IPv4 addresses in IPv4 notation' }
  }
  const never = neverDialled(base)
  if (never && Number(never.split('/')[1]) <= bits) {
    return { problem: `connections to ${never} are always blocked` }
  }
  return { range: [base, bits] }
}

function parseName(name: string, port: number | undefined): AllowEntry | { problem: string } {
  if (name === 'internal' || name.endsWith('.internal')) {
    return { problem: 'names below .internal are allowed without an entry' }
  }
  // In the normalized form of URLs, because other forms would never match.
  const url = /^[\w.-]+$/.test(name) && URL.canParse(`http://${name}`) && new URL(`http://${name}`)
  return url && url.hostname === name ? { kind: 'name', name, port } : NO_ENTRY
}

function contains([base, bits]: Range, address: Address): boolean {
  return address.kind() === base.kind() && address.match(base as never, bits)
}

/** Origin of a policy's request. */
export interface Asker {
  /** Connection of the visitor whose request the policy judges. */
  readonly connection: Connection
  /** How many policies have asked each other up to this request: 1 for that of a visitor's. */
  readonly depth: number
  /** Budget of that request, which also pays for the policies of internal endpoints. */
  readonly account?: Account
}

/** How policies reach beyond the exchange they run for. */
export interface PolicyReach {
  /** Whether an internal endpoint with this URL is online; without it nothing can be forwarded. */
  readonly hasInternal?: ((url: URL) => boolean) | undefined
  /**
   * Opens a connection to an internal endpoint. Its policy judges the data as if the visitor had been passed
   * on. Undefined if the endpoint is offline.
   */
  readonly connectInternal?:
    | ((url: URL, asker: Asker | undefined) => Duplex | undefined)
    | undefined
  /** The value of `x-policy-hops` in requests to others, which may be this gateway again. */
  readonly sealDepth?: ((depth: number) => string) | undefined
  /** The ranges of an IP policy as they are now; undefined when there is no such policy. */
  readonly ipPolicy?: ((id: string) => AddressRanges | undefined) | undefined
  /** PEM of a certificate authority; undefined if the policy cannot use it, or it does not exist. */
  readonly certificateAuthority?: ((id: string) => string | undefined) | undefined
  /** Allowed targets of http-request and key downloads. Default: none. */
  readonly mayDial?: ((target: DialTarget) => boolean) | undefined
  /**
   * 32 secret bytes for this purpose and account, stable over restarts. Without it, sessions last as long as
   * the policy.
   */
  readonly secretFor?: ((purpose: string) => Buffer) | undefined
  /** Whether there is a table of addresses. Undefined: all tables may be used. */
  readonly hasTable?: ((table: AddressTable) => boolean) | undefined
  /** Secrets of `secrets.get()`. Undefined: every name is accepted, and no secret has a value. */
  readonly secrets?: PolicySecrets | undefined
  /** Allowed key files, by path. Default: none. */
  readonly mayRead?: ((path: string) => boolean) | undefined
  /** The policy is for another machine: a key file that may not be read here is unreadable, not a mistake. */
  readonly isElsewhere?: boolean | undefined
}
