import type { LookupFunction, Socket } from 'node:net'
import { abortedAfter } from '../../base/deadline.ts'
import { encodeProxyProtocol, type ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import { authorityOf, type ForwardTarget } from './forward-target.ts'
import { connectUpstream, HandshakeError } from './upstream-connection.ts'
import type { TlsMinVersion } from './upstream-options.ts'
import { type HttpQuestion, requestStatus } from './upstream-request.ts'
import type { UpstreamEvent } from './upstream-state.ts'

/** How a service is asked: a bare connection, or a request for a path. */
export interface UpstreamQuestion {
  readonly target: ForwardTarget
  /** Undefined: whether it takes a connection. */
  readonly http: HttpQuestion | undefined
  /** Whether it speaks HTTP/2, asked for a path or not. */
  readonly http2?: boolean | undefined
  /** It wants to be told first whose connection it is. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  readonly withinMs: number
  /** Whether the certificate of a service that speaks TLS has to be trusted; it has to, unless given. */
  readonly verifyTls?: boolean | undefined
  readonly tlsMinVersion?: TlsMinVersion | undefined
  readonly lookup: LookupFunction | undefined
}

/** `exhausted`: it could not be asked, because this process has no descriptors or memory left. */
export type UpstreamAnswer = UpstreamEvent | 'exhausted'

const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS'])
/** A path that is asked for by the owner's wish has to answer below. */
const FIRST_FAILING_STATUS = 500
const NEVER = new AbortController().signal

/** Asks once; never throws. */
export function askUpstream(question: UpstreamQuestion): Promise<UpstreamAnswer> {
  return abortedAfter(question.withinMs, NEVER, (signal) => ask(question, signal))
}

async function ask(question: UpstreamQuestion, signal: AbortSignal): Promise<UpstreamAnswer> {
  const { target, http, verifyTls = true, tlsMinVersion, lookup } = question
  const { proxyProtocol: version } = question
  const http2 = http?.http2 ?? question.http2
  // Nobody's connection: the service has to take it, and to count nobody for it.
  const preface = version && encodeProxyProtocol(version, undefined)
  try {
    const wish = { lookup, verifyTls, tlsMinVersion, http2, preface, signal }
    const socket = await connectUpstream(target, wish)
    signal.addEventListener('abort', () => socket.destroy())
    const authority = authorityOf(target)
    const answer = await (http ? askHttp(socket, { ...http, authority }) : taken(socket))
    socket.destroy()
    return answer === 'garbled' && signal.aborted ? 'hung' : answer
  } catch (error) {
    return failureOf(error as Error, { signal, isHttp: http !== undefined })
  }
}

/** Ends it behind what was written, if there is anything. */
function taken(socket: Socket): Promise<UpstreamAnswer> {
  return new Promise((resolve) => {
    const settle = () => resolve('connected')
    socket.once('finish', settle).once('close', settle).end()
  })
}

async function askHttp(socket: Socket, http: HttpQuestion): Promise<UpstreamAnswer> {
  try {
    const status = await requestStatus(socket, http)
    return http.method === 'GET' && status >= FIRST_FAILING_STATUS ? 'failed' : 'answered'
  } catch {
    return 'garbled'
  }
}

function failureOf(
  error: NodeJS.ErrnoException,
  { signal, isHttp }: { readonly signal: AbortSignal; readonly isHttp: boolean },
): UpstreamAnswer {
  if (error instanceof HandshakeError) {
    if (error.kind !== 'other') return error.kind
    return signal.aborted ? 'hung' : 'garbled'
  }
  const { code = '' } = error
  if (EXHAUSTED.has(code)) return 'exhausted'
  // A port without a listener refuses; only a connection that was taken is reset.
  if (code === 'ECONNRESET') return isHttp ? 'garbled' : 'connected'
  return 'failed'
}
