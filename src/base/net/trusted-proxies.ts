import type { Clock } from '../clock.ts'
import type { Logger } from '../logger.ts'
import { type Cidr, parseAddress } from './network.ts'

/** Header in which a proxy names the client: `X-Forwarded-For`, or `Forwarded` of RFC 7239. */
export type ForwardingHeader = 'x-forwarded-for' | 'forwarded'

export interface ProxyConfig {
  readonly networks: readonly Cidr[]
  readonly header: ForwardingHeader
  /** Whether proxies send a PROXY header at the start of each visitor's connection. */
  readonly sendProxyProtocol: boolean
}

/** Client of a request, as reported by the proxies in front. */
export interface ForwardedClient {
  /** The right-most address that is not a trusted proxy. */
  readonly ip: string
  /** 0 if the header has no port. */
  readonly port: number
  /** Scheme between the client and the outermost proxy. Undefined if the header does not say. */
  readonly scheme: 'http' | 'https' | undefined
  /**
   * Entries to the left of the client, nearest first. Written by the client or an earlier proxy, so not
   * trusted.
   */
  readonly before: readonly string[]
}

export interface TrustedProxiesOptions extends Pick<ProxyConfig, 'networks' | 'header'> {
  readonly log: Logger
  readonly clock: Clock
}

/** Reasons why a client is unknown, with the fix. Each is logged at most once a minute. */
const PROBLEMS = {
  'missing-header':
    'a trusted proxy did not name the client: set the header of GATEWAY_FORWARDED_HEADER at the proxy',
  'invalid-header':
    'a trusted proxy named the client without a valid address: check the header of GATEWAY_FORWARDED_HEADER at the proxy',
  'missing-proxy-protocol':
    'a connection without a valid PROXY header was closed: enable the PROXY protocol at the load balancer',
  'untrusted-proxy-protocol':
    'a connection was closed, because its address is not in GATEWAY_TRUSTED_PROXIES',
} as const
/** Minimum time between two log lines for the same problem. */
const SILENT_MS = 60_000
/** More than any chain of proxies. A client may write thousands of entries in front of it. */
const MAX_ENTRIES = 32

export type ProxyProblem = keyof typeof PROBLEMS

interface Hop {
  readonly ip: string | undefined
  readonly port: number
  readonly proto: string | undefined
}

/** Trusted proxies in front of a listener. Determines the client that they report. */
export class TrustedProxies {
  readonly #options: TrustedProxiesOptions
  readonly #loggedAt = new Map<ProxyProblem, number>()

  constructor(options: TrustedProxiesOptions) {
    this.#options = options
  }

  /** `ip` is IPv4 or IPv6 without brackets. */
  trusts(ip: string): boolean {
    const address = parseAddress(ip)
    return (
      address !== undefined && this.#options.networks.some((network) => network.contains(address))
    )
  }

  /**
   * Returns the client of a request sent by the proxy at `ip`, undefined if the proxy does not name it.
   * `valuesOf` returns the values of a field by its lower-case name, in order of arrival.
   */
  clientOf(ip: string, valuesOf: (name: string) => readonly string[]): ForwardedClient | undefined {
    const { header } = this.#options
    const isRfc7239 = header === 'forwarded'
    const [last, ...entries] = lastEntries(valuesOf(header), isRfc7239)
    if (last === undefined) {
      this.note('missing-header', ip)
      return undefined
    }
    const read = isRfc7239 ? forwardedHop : listedHop
    let client = read(last)
    while (entries.length > 0 && this.trusts(client.ip ?? '')) client = read(entries.shift() ?? '')
    if (client.ip === undefined) {
      this.note('invalid-header', ip)
      return undefined
    }
    const proto = header === 'forwarded' ? client.proto : valuesOf('x-forwarded-proto').at(-1)
    const before = entries
      .map((entry) => (isRfc7239 ? (read(entry).ip ?? 'unknown') : entry))
      .reverse()
    return { ip: client.ip, port: client.port, scheme: schemeOf(proto), before }
  }

  /** Logs why the client behind `ip` is unknown. */
  note(problem: ProxyProblem, ip: string): void {
    const { clock, log } = this.#options
    const now = clock.monotonic()
    if (now - (this.#loggedAt.get(problem) ?? Number.NEGATIVE_INFINITY) < SILENT_MS) return
    this.#loggedAt.set(problem, now)
    log.warn({ proxy: ip }, PROBLEMS[problem])
  }
}

function schemeOf(proto: string | undefined): 'http' | 'https' | undefined {
  const text = proto?.split(',').at(-1)?.trim().toLowerCase()
  if (text === 'https' || text === 'wss') return 'https'
  return text === 'http' || text === 'ws' ? 'http' : undefined
}

/**
 * Returns the entries of a list, the last first. Reads from the right, where the trusted proxies have
 * written. A client that opens a quote without closing it thus spoils only its own entries.
 */
function lastEntries(values: readonly string[], hasQuotes: boolean): string[] {
  const entries: string[] = []
  for (const value of [...values].reverse()) {
    let end = value.length
    while (end >= 0 && entries.length < MAX_ENTRIES) {
      const comma = lastSeparator(value, end, ',', hasQuotes)
      const entry = value.slice(comma + 1, end).trim()
      if (entry !== '') entries.push(entry)
      end = comma
    }
  }
  return entries
}

/** Returns the position of the last separator before `end` outside of quotes, -1 if not found. */
function lastSeparator(text: string, end: number, separator: string, hasQuotes: boolean): number {
  if (!hasQuotes) return end === 0 ? -1 : text.lastIndexOf(separator, end - 1)
  let isQuoted = false
  for (let at = end - 1; at >= 0; at -= 1) {
    if (text[at] === '"' && !(isQuoted && isEscaped(text, at))) isQuoted = !isQuoted
    else if (text[at] === separator && !isQuoted) return at
  }
  return -1
}

/** True after an odd number of backslashes. */
function isEscaped(text: string, at: number): boolean {
  let start = at
  while (text[start - 1] === '\\') start -= 1
  return (at - start) % 2 === 1
}

function listedHop(entry: string): Hop {
  return { ...nodeOf(entry), proto: undefined }
}

const PAIR = /^([!#$%&'*+.^_`|~\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~\w-]+))$/

/** Parses an element of `Forwarded` (RFC 7239 4). An invalid element has no address. */
function forwardedHop(element: string): Hop {
  const pairs = new Map<string, string>()
  for (let end = element.length; end >= 0; ) {
    const start = lastSeparator(element, end, ';', true)
    const [, name = '', quoted, plain = ''] = PAIR.exec(element.slice(start + 1, end).trim()) ?? []
    pairs.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? plain)
    end = start
  }
  return { ...nodeOf(pairs.has('') ? '' : (pairs.get('for') ?? '')), proto: pairs.get('proto') }
}

/** Matches `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`. */
const NODE = /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+))(?::(\d{1,5}))?$/

/** `unknown`, `_hidden` and host names have no address. */
function nodeOf(text: string): { readonly ip: string | undefined; readonly port: number } {
  const [, inBrackets, ipv4, port = '0'] = NODE.exec(text) ?? []
  const ip = parseAddress(inBrackets ?? ipv4 ?? text)?.toString()
  return { ip, port: ip === undefined || Number(port) > 65_535 ? 0 : Number(port) }
}
