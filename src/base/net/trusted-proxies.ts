import { type Cidr, parseAddress } from '../cidr.ts'
import type { Clock } from '../clock.ts'
import type { Logger } from '../logger.ts'

/** The header by which a proxy names the client: `X-Forwarded-For`, or `Forwarded` of RFC 7239. */
export type ForwardingHeader = 'x-forwarded-for' | 'forwarded'

export interface ProxyConfig {
  readonly networks: readonly Cidr[]
  readonly header: ForwardingHeader
  /** They begin each connection of a visitor with a PROXY header. */
  readonly sendProxyProtocol: boolean
}

/** What the proxies in front say of a request. */
export interface ForwardedClient {
  /** The right-most address that is not a trusted proxy. */
  readonly ip: string
  /** 0 where the header has none. */
  readonly port: number
  /** How the client came to the outermost proxy; undefined where the header does not say. */
  readonly scheme: 'http' | 'https' | undefined
  /** Entries left of the client, as it or a proxy before it wrote them: not trusted. */
  readonly before: readonly string[]
}

export interface TrustedProxiesOptions extends Pick<ProxyConfig, 'networks' | 'header'> {
  readonly log: Logger
  readonly clock: Clock
}

/** Why a client is not known, and what to do. One line of the log each, at most one a minute. */
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
const SILENT_MS = 60_000

export type ProxyProblem = keyof typeof PROBLEMS

interface Hop {
  readonly text: string
  readonly ip: string | undefined
  readonly port: number
  readonly proto: string | undefined
}

/** The proxies in front of a listener, and who they say the client is. */
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
   * The client of a request that the proxy at `ip` has sent; undefined where the proxy does not say.
   * `valuesOf` gives the values of a field by its lower-case name, in the order of their arrival.
   */
  clientOf(ip: string, valuesOf: (name: string) => readonly string[]): ForwardedClient | undefined {
    const { header } = this.#options
    const hops = (header === 'forwarded' ? forwardedHops : listedHops)(valuesOf(header))
    let at = hops.length - 1
    while (at > 0 && this.trusts(hops[at]?.ip ?? '')) at -= 1
    const client = hops[at]
    if (client?.ip === undefined) {
      this.note(client ? 'invalid-header' : 'missing-header', ip)
      return undefined
    }
    const proto = header === 'forwarded' ? client.proto : valuesOf('x-forwarded-proto').at(-1)
    const before = hops.slice(0, at).map(({ text }) => text)
    return { ip: client.ip, port: client.port, scheme: schemeOf(proto), before }
  }

  /** Logs why the client behind `ip` is not known. */
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

function listedHops(values: readonly string[]): Hop[] {
  return values
    .flatMap((value) => value.split(','))
    .map((text) => text.trim())
    .filter((text) => text !== '')
    .map((text) => ({ text, ...nodeOf(text), proto: undefined }))
}

const PAIR = /^([!#$%&'*+.^_`|~\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~\w-]+))$/

/** The elements of `Forwarded` (RFC 7239 4); one that cannot be read has no address. */
function forwardedHops(values: readonly string[]): Hop[] {
  return values
    .flatMap((value) => split(value, ','))
    .filter((element) => element.trim() !== '')
    .map((element) => {
      const pairs = new Map<string, string>()
      for (const pair of split(element, ';')) {
        const [, name = '', quoted, plain = ''] = PAIR.exec(pair.trim()) ?? []
        pairs.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? plain)
      }
      const node = pairs.has('') ? '' : (pairs.get('for') ?? '')
      const { ip, port } = nodeOf(node)
      return { text: ip ?? 'unknown', ip, port, proto: pairs.get('proto') }
    })
}

/** At a separator outside of quotes. */
function split(text: string, separator: string): string[] {
  const parts: string[] = []
  let start = 0
  let isQuoted = false
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at]
    if (isQuoted && character === '\\') at += 1
    else if (character === '"') isQuoted = !isQuoted
    else if (character === separator && !isQuoted) {
      parts.push(text.slice(start, at))
      start = at + 1
    }
  }
  return [...parts, text.slice(start)]
}

/** `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`. */
const NODE = /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+))(?::(\d{1,5}))?$/

/** `unknown`, `_hidden` and host names have no address. */
function nodeOf(text: string): { readonly ip: string | undefined; readonly port: number } {
  const [, inBrackets, ipv4, port = '0'] = NODE.exec(text) ?? []
  const ip = parseAddress(inBrackets ?? ipv4 ?? text)?.toString()
  return { ip, port: ip === undefined || Number(port) > 65_535 ? 0 : Number(port) }
}
