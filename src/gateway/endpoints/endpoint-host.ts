import { checkDomain, type DomainCodes, isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  type HttpProtocol,
  ingressTypeOf,
  PROTOCOLS,
} from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'
import type { Endpoint } from './endpoint.ts'
import { isPooled, MAX_POOL_MEMBERS } from './endpoint-pool.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

const URL_FORM = /^([a-z][a-z0-9+.-]*):\/\/([^/?#@:]+)(?::(\d{1,5}))?\/?$/i
const SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i
const URL_ADVICE = 'Write https://host, http://host, tls://host or tcp://host:port.'
const DEFAULT_PORTS: Readonly<Record<HttpProtocol, number>> = { http: 80, https: 443 }

/**
 * Builds and parses the URLs of endpoints. They name the port of the ingress unless it is the scheme's
 * default.
 */
export class EndpointUrls {
  #ports: Readonly<Record<HttpProtocol, number>>

  /** `ports`: configured ports of the ingress. */
  constructor(ports: Readonly<Record<HttpProtocol, number>>) {
    this.#ports = ports
  }

  /** Sets the ports that the ingress really listens on, including ports assigned by the system. */
  listening(ports: Readonly<Record<HttpProtocol, number>>): void {
    this.#ports = ports
  }

  of(protocol: EndpointProtocol, host: string): string {
    const entrance = ingressTypeOf(protocol)
    // The host of a TCP address already contains its port.
    if (entrance === 'tcp') return `tcp://${host}`
    const port = this.#ports[entrance]
    const isDefault = isInternal(host) || port === DEFAULT_PORTS[entrance]
    return `${protocol}://${host}${isDefault ? '' : `:${port}`}`
  }

  /** Whether a URL may name this port: the scheme's default, or the port of the ingress. */
  mayName(protocol: HttpProtocol | 'tls', host: string, port: number): boolean {
    const entrance = protocol === 'http' ? 'http' : 'https'
    return port === DEFAULT_PORTS[entrance] || (!isInternal(host) && port === this.#ports[entrance])
  }

  /**
   * Parses the URL of an endpoint. Throws ServiceError 18001, 18003, 18022 or the error of an invalid host.
   * Does not check the port of a TCP address.
   */
  read(url: string): EndpointAddress {
    if (!SCHEME.test(url)) throw new ServiceError(18022, `The URL has no scheme. ${URL_ADVICE}`)
    const [, scheme = '', name = '', port] = URL_FORM.exec(url) ?? []
    if (name === '') throw new ServiceError(18001, `The URL is not valid. ${URL_ADVICE}`)
    const protocol = PROTOCOLS.find((known) => known === scheme.toLowerCase())
    if (!protocol) {
      throw new ServiceError(18022, `The scheme ${scheme} is not supported. ${URL_ADVICE}`)
    }
    const host = name.toLowerCase()
    if (protocol === 'tcp') {
      if (port === undefined) throw new ServiceError(18001, `A TCP URL needs a port. ${URL_ADVICE}`)
      return {
        protocol,
        host: isInternal(host) ? internalAddress(host, Number(port)) : `${host}:${Number(port)}`,
      }
    }
    checkEndpointHost(host)
    if (port !== undefined && !this.mayName(protocol, host, Number(port))) {
      throw new ServiceError(18003, `The port ${port} is not served by this gateway. Leave it out.`)
    }
    return { protocol, host }
  }
}

const HOST_CODES: DomainCodes = {
  character: 326,
  'wildcard-place': 326,
  'repeated-dot': 327,
  'first-character': 328,
  'last-character': 329,
  hyphens: 330,
  'top-level': 331,
  'not-qualified': 331,
  punycode: 347,
  underscore: 355,
  'label-length': 396,
  length: 397,
}
const MAX_INTERNAL_PARTS = 5

/** Binding of the endpoints on a host: whether visitors or only policies can reach them. */
export function bindingOf(host: string): 'public' | 'internal' {
  return isInternal(host) ? 'internal' : 'public'
}

/**
 * Checks the lower-case host of an endpoint. Throws the ServiceError of its first problem: 326 to 331, 347,
 * 355, 396 or 397. An internal name with too many parts throws 9031.
 */
export function checkEndpointHost(host: string): void {
  checkDomain(host, HOST_CODES)
  const parts = host.split('.').length
  if (!isInternal(host) || parts <= MAX_INTERNAL_PARTS) return
  throw new ServiceError(
    9031,
    `The internal domain ${host} has ${parts} labels; at most ${MAX_INTERNAL_PARTS} are allowed.`,
  )
}

const MAX_PORT = 65_535

/**
 * Returns the address of an internal TCP endpoint. Any port is valid, because nothing listens on it. Throws
 * the ServiceErrors of `checkEndpointHost`, 326 for a wildcard, and 9030 for a port out of range.
 */
export function internalAddress(host: string, port: number): string {
  checkEndpointHost(host)
  if (host.startsWith('*.')) {
    throw new ServiceError(326, `The host ${host} cannot have a TCP address: it is a wildcard.`)
  }
  if (port >= 1 && port <= MAX_PORT) return `${host}:${port}`
  throw new ServiceError(9030, `The port ${port} is out of range: a port is from 1 to ${MAX_PORT}.`)
}

/**
 * Checks that the bindings match the host: an internal endpoint must not become public, or a public endpoint
 * internal. Throws ServiceError 9029 if they differ, and `unknownCode` for an unknown binding.
 */
export function checkBindings(asked: readonly string[], host: string, unknownCode: number): void {
  const foreign = asked.find((binding) => binding !== 'public' && binding !== 'internal')
  if (foreign !== undefined) {
    throw new ServiceError(unknownCode, `The binding ${foreign} is not supported.`)
  }
  if (asked.every((binding) => binding === bindingOf(host))) return
  throw new ServiceError(
    9029,
    `The domain ${host} does not match the binding ${asked.join(', ')}. Names of internal endpoints must end in ".internal"; other names must not.`,
  )
}

/** The address that a new endpoint asks for. */
export interface AddressClaim extends EndpointAddress {
  readonly ownerId: string | null
  /** Whether policies of other accounts can reach it. */
  readonly isShared: boolean
  /** Whether it shares the address with other endpoints of its account. */
  readonly isPooled: boolean
}

/**
 * Checks that an endpoint may use its address, as if `gone` were removed. Throws ServiceError:
 *
 * - 334: another endpoint or account has the address.
 * - 18016 or 18017: pooling is enabled for only one of the two endpoints.
 * - 18021: the pool is full.
 */
export function checkAddressFree(
  claim: AddressClaim,
  registry: Pick<EndpointRegistry, 'holdersOf' | 'sharersOf' | 'foreignHolder'>,
  gone?: Endpoint,
): void {
  const { ownerId, protocol, isShared } = claim
  if (registry.foreignHolder(claim, ownerId)) {
    throw new ServiceError(
      334,
      `The name ${claim.host} belongs to another account, which has it now or had it within the hour. Use another name.`,
    )
  }
  const holders = registry.holdersOf(claim, ownerId).filter((holder) => holder !== gone)
  const sharers = isShared ? registry.sharersOf(claim) : []
  if (sharers.some((sharer) => sharer.ownerId !== ownerId)) {
    throw new ServiceError(334, `Another account already shares the name ${claim.host}.`)
  }
  const [holder] = holders
  if (!holder) return
  const { url } = holder
  const isAlike = holder.ownerId === ownerId && holder.protocol === protocol
  if (!isAlike || !(claim.isPooled || isPooled(holder))) {
    throw new ServiceError(334, `The endpoint ${url} is already online.`)
  }
  if (!isPooled(holder)) {
    throw new ServiceError(
      18016,
      `The endpoint ${url} is online without pooling. Enable pooling for it too, or stop it.`,
    )
  }
  if (!claim.isPooled) {
    throw new ServiceError(
      18017,
      `The endpoint ${url} is online in a pool. Enable pooling for this endpoint too, or use another address.`,
    )
  }
  if (holders.length < MAX_POOL_MEMBERS) return
  throw new ServiceError(
    18021,
    `The pool of ${url} is at its limit of ${holders.length} endpoints.`,
  )
}
