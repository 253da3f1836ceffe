import { lookup as dnsLookup } from 'node:dns'
import type { ClientRequest, IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { LookupFunction } from 'node:net'
import { formatListenAddress } from '../../base/listen-address.ts'
import { parseAddress } from '../../base/net/network.ts'
import { request as httpRequest } from '../../base/net/node-http.ts'
import { onAbort } from '../../base/on-abort.ts'
import type { Asker, PolicyReach } from './outbound-allow.ts'

/** Says to this gateway, where a request comes back to it, how deep policies ask each other. */
const DEPTH_FIELD = 'x-policy-hops'

interface OutboundRequest {
  readonly url: URL
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | undefined
  readonly maxBytes: number
  readonly signal: AbortSignal
  /** Undefined where the gateway asks by itself. */
  readonly asker?: Asker
}

export interface OutboundResponse {
  readonly status: number
  /** Values by lower-case name. */
  readonly headers: ReadonlyMap<string, string[]>
  readonly body: Buffer
  /** Empty for internal endpoints. */
  readonly remoteIp: string
}

/** Why nothing came back. The code is one of the service: `ERR_NGROK_3601`. */
export class OutboundError extends Error {
  override readonly name = 'OutboundError'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Sends a request to an HTTP server for a policy. The author of a policy is not the owner of the gateway. So
 * only internal endpoints and allowed targets can be reached, and the check uses the dialled address.
 * Redirects are returned as responses. Throws OutboundError.
 */
export function send(request: OutboundRequest, reach: PolicyReach): Promise<OutboundResponse> {
  let off: (() => void) | undefined
  const answer = new Promise<OutboundResponse>((resolve, reject) => {
    const fail = (error: Error) => reject(failureOf(error, request.signal))
    try {
      const outgoing = open(request, reach)
      outgoing.on('error', fail)
      // Node reports a change of protocol by no event.
      off = onAbort(request.signal, () => fail(new Error('cancelled')))
      outgoing.on('response', (response) => {
        collect(response, request.maxBytes).then(resolve, (error: Error) => {
          outgoing.destroy()
          fail(error)
        })
      })
      outgoing.end(request.body)
    } catch (error) {
      fail(error as Error)
    }
  })
  return answer.finally(() => off?.())
}

function open(
  { url, method, headers, signal, asker }: OutboundRequest,
  reach: PolicyReach,
): ClientRequest {
  if (url.hostname.endsWith('.internal')) {
    const stream = reach.connectInternal?.(url, asker)
    if (!stream) throw new OutboundError('ERR_NGROK_3200', `The endpoint ${url.host} is offline.`)
    // TLS of internal endpoints ends at the gateway, which is here.
    return httpRequest({
      ...pathOf(url),
      method,
      headers: { ...headers, host: url.host },
      signal,
      createConnection: () => stream,
    })
  }
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const isTls = url.protocol === 'https:'
  const port = Number(url.port) || (isTls ? 443 : 80)
  const mayDial = (address: string) => reach.mayDial?.({ host, address, port }) ?? false
  // An address is dialled without a lookup.
  if (parseAddress(host) && !mayDial(host)) throw unreachable(host, port)
  const dial = isTls ? httpsRequest : httpRequest
  const lookup = guardedLookup(mayDial, port)
  const fields = { ...forwardedFor(asker), ...headers, ...sealedDepth(asker, reach) }
  return dial(url, { method, headers: fields, signal, agent: false, lookup })
}

/** The ingress says it to internal endpoints. */
function forwardedFor(asker: Asker | undefined): Record<string, string> {
  return asker ? { 'x-forwarded-for': asker.connection.clientIp } : {}
}

function sealedDepth(asker: Asker | undefined, reach: PolicyReach): Record<string, string> {
  const seal = reach.sealDepth?.(asker?.depth ?? 1)
  return seal === undefined ? {} : { [DEPTH_FIELD]: seal }
}

const pathOf = (url: URL) => ({ path: `${url.pathname}${url.search}` })

function unreachable(host: string, port: number): OutboundError {
  const address = formatListenAddress({ host, port })
  return new OutboundError(
    'ERR_NGROK_3600',
    `GATEWAY_OUTBOUND_ALLOW does not allow connections to ${address}. Add ${address} to this setting of the gateway.`,
  )
}

/** Any public address, for the question whether the name itself is allowed. */
const SOME_ADDRESS = '1.1.1.1'

function unresolved(
  host: string,
  port: number,
  { code }: NodeJS.ErrnoException,
  mayDial: (address: string) => boolean,
): OutboundError {
  const why = code === 'EAI_AGAIN' ? 'DNS does not answer' : 'no address in DNS'
  const said = `${host} cannot be resolved: ${why} (${code}).`
  const entry = formatListenAddress({ host, port })
  // Otherwise it would be the next error.
  const missing = mayDial(SOME_ADDRESS)
    ? ''
    : ` GATEWAY_OUTBOUND_ALLOW does not list ${entry} either.`
  return new OutboundError('ERR_NGROK_3600', `${said}${missing}`)
}

/**
 * Resolves names to the allowed addresses. The socket uses this result without another lookup, so a name
 * cannot change between check and connection.
 */
function guardedLookup(mayDial: (address: string) => boolean, port: number): LookupFunction {
  return (hostname, options, callback) => {
    dnsLookup(hostname, { ...options, all: true }, (error, addresses) => {
      const allowed = error ? [] : addresses.filter(({ address }) => mayDial(address))
      const [first] = allowed
      if (error) callback(unresolved(hostname, port, error, mayDial), [])
      else if (!first) callback(unreachable(hostname, port), [])
      else if (options.all) callback(null, allowed)
      else callback(null, first.address, first.family)
    })
  }
}

async function collect(response: IncomingMessage, maxBytes: number): Promise<OutboundResponse> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of response) {
    length += chunk.length
    if (length > maxBytes) {
      throw new OutboundError('ERR_NGROK_3601', `The answer exceeds ${maxBytes} bytes.`)
    }
    chunks.push(chunk)
  }
  const headers = new Map<string, string[]>()
  for (const [name, values = []] of Object.entries(response.headersDistinct)) {
    headers.set(name, values)
  }
  return {
    status: response.statusCode ?? 0,
    headers,
    body: Buffer.concat(chunks),
    remoteIp: response.socket.remoteAddress ?? '',
  }
}

function failureOf(error: Error, signal: AbortSignal): OutboundError {
  if (error instanceof OutboundError) return error
  if (signal.aborted)
    return new OutboundError('ERR_NGROK_3602', 'The server did not answer in time.')
  const reason = 'code' in error ? String(error.code) : error.message
  return new OutboundError('ERR_NGROK_3600', `The request to the server failed: ${reason}.`)
}

const MAX_BYTES = 262_144
const TIMEOUT_MS = 5_000

/** Downloads a public file of at most 256 KiB within 5 s. Throws OutboundError; its text contains `what`. */
export async function download(
  url: URL,
  reach: PolicyReach,
  { what, accept }: { readonly what: string; readonly accept: string },
): Promise<Buffer> {
  const headers = { accept, 'user-agent': 'device-agent-gateway' }
  const signal = AbortSignal.timeout(TIMEOUT_MS)
  const request = { url, method: 'GET', headers, maxBytes: MAX_BYTES, signal }
  const { status, body } = await send(request, reach)
  if (status === 200) return body
  throw new OutboundError('ERR_NGROK_3422', `${what} answered ${status}.`)
}
