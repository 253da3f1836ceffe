import { request as requestHttps } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import { createSecureContext, rootCertificates, type SecureContext, TLSSocket } from 'node:tls'
import { abortable, withDeadline } from '../../base/deadline.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import { exchange, request as requestHttp } from '../../base/net/node-http.ts'

/** More than the answer to a probe needs. */
const MAX_BODY_BYTES = 4_096

export interface PublicRequest {
  readonly method: 'GET' | 'HEAD'
  /** Trusted CAs, see `trustBeside`. Default: the public CAs. */
  readonly trust?: SecureContext | undefined
  /** False accepts any certificate: only for harmless data, or data with its own proof. */
  readonly verify: boolean
  /** Address to connect to. Default: the address from DNS. */
  readonly connectTo?: ListenAddress | undefined
  readonly deadlineMs: number
  readonly signal: AbortSignal
}

export interface PublicAnswer {
  readonly status: number
  readonly body: string
  /** The `Date` header, milliseconds since the epoch. */
  readonly date: number | undefined
  /** End of the certificate's validity, milliseconds since the epoch. Undefined without TLS. */
  readonly validTo?: number | undefined
  /** Error code of the service if the service itself answered, for example `ERR_NGROK_3200`. */
  readonly serviceCode: string | undefined
}

/**
 * Trusts a CA (PEM text) in addition to the public CAs. Reading the public CAs takes 20 ms, so call it once.
 */
export function trustBeside(caCert: string): SecureContext {
  return createSecureContext({ ca: [...rootCertificates, caCert] })
}

/**
 * Requests a public URL like an unknown client: new connection, no credentials, no redirects. Throws the
 * socket's error, a DeadlineError, or the signal's reason.
 */
export async function requestPublic(url: URL, options: PublicRequest): Promise<PublicAnswer> {
  const isOver = new AbortController()
  try {
    const answer = withDeadline(send(url, options, isOver.signal), options.deadlineMs, url.host)
    return await abortable(answer, options.signal)
  } finally {
    isOver.abort()
  }
}

async function send(url: URL, options: PublicRequest, signal: AbortSignal): Promise<PublicAnswer> {
  const { method, trust, verify, connectTo } = options
  const open = url.protocol === 'http:' ? requestHttp : requestHttps
  const request = open({
    method,
    signal,
    agent: false,
    host: connectTo?.host ?? url.hostname,
    port: connectTo?.port ?? url.port,
    path: `${url.pathname}${url.search}`,
    headers: { host: url.host, connection: 'close' },
    // An IP address is no server name (RFC 6066).
    servername: isIP(url.hostname.replace(/^\[|\]$/g, '')) ? '' : url.hostname,
    rejectUnauthorized: verify,
    ...(connectTo === undefined && isLocalhostName(url.hostname) && { lookup: loopback }),
    ...(trust && { secureContext: trust }),
  })
  let validTo: number | undefined
  request.once('socket', (socket) => {
    socket.once('secureConnect', () => {
      const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined
      if (certificate) validTo = Date.parse(certificate.validTo)
    })
  })
  const { response, text } = await exchange(request, undefined, MAX_BODY_BYTES)
  const date = Date.parse(response.headers.date ?? '')
  const code = response.headers['ngrok-error-code']
  return {
    status: response.statusCode ?? 0,
    body: text,
    date: Number.isNaN(date) ? undefined : date,
    validTo,
    serviceCode: typeof code === 'string' ? code : undefined,
  }
}

/** Names below `.localhost` are this machine (RFC 6761 section 6.3), but not every resolver supports this. */
function isLocalhostName(host: string): boolean {
  return host === 'localhost' || host.endsWith('.localhost')
}

const loopback: LookupFunction = (_name, { all }, answer) => {
  if (all) answer(null, [{ address: '127.0.0.1', family: 4 }])
  else answer(null, '127.0.0.1', 4)
}
