import { request } from 'node:http'
import { connect } from 'node:http2'
import { createConnection, type LookupFunction, type Socket } from 'node:net'
import { encodeProxyProtocol, type ProxyProtocol } from '../../base/net/proxy-protocol.ts'
import type { ForwardTarget } from './forward-target.ts'
import type { UpstreamEvent } from './upstream-state.ts'

export interface HttpQuestion {
  readonly method: 'GET' | 'HEAD'
  readonly path: string
  /** By prior knowledge. */
  readonly http2: boolean
}

/** How a service is asked: a bare connection, or a request for a path. */
export interface UpstreamQuestion {
  readonly target: ForwardTarget
  /** Undefined: whether it takes a connection. */
  readonly http: HttpQuestion | undefined
  /** It wants to be told first whose connection it is. */
  readonly proxyProtocol?: ProxyProtocol | undefined
  readonly withinMs: number
  readonly lookup: LookupFunction | undefined
}

/** `exhausted`: it could not be asked, because this process has no descriptors or memory left. */
export type UpstreamAnswer = UpstreamEvent | 'exhausted'

const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS'])
/** A path that is asked for by the owner's wish has to answer below. */
const FIRST_FAILING_STATUS = 500
const USER_AGENT = 'device-agent'

/** Asks once; never throws. */
export function askUpstream(question: UpstreamQuestion): Promise<UpstreamAnswer> {
  return question.http ? askHttp(question, question.http) : tryConnect(question)
}

/** Nobody's connection: the service has to take it, and to count nobody for it. */
function dial({ target, proxyProtocol, lookup }: UpstreamQuestion): Socket {
  const { host, port } = target
  const socket = createConnection({ host, port, ...(lookup && { lookup }) })
  if (proxyProtocol) socket.write(encodeProxyProtocol(proxyProtocol, undefined))
  return socket
}

function tryConnect(question: UpstreamQuestion): Promise<UpstreamAnswer> {
  const { withinMs } = question
  return new Promise((resolve) => {
    const socket = dial(question)
    const settle = (answer: UpstreamAnswer) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => settle('failed'), withinMs)
    // Behind what was written, if there is anything.
    socket.once('connect', () => socket.end(() => settle('connected')))
    socket.on('error', (error) => {
      if (isExhausted(error)) settle('exhausted')
      else settle(isReset(error) ? 'connected' : 'failed')
    })
  })
}

function askHttp(question: UpstreamQuestion, http: HttpQuestion): Promise<UpstreamAnswer> {
  return new Promise((resolve) => {
    let isConnected = false
    const settle = (answer: UpstreamAnswer) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => settle(isConnected ? 'hung' : 'failed'), question.withinMs)
    const onError = (error: Error) => {
      if (isExhausted(error)) settle('exhausted')
      else settle(isConnected || isReset(error) ? 'garbled' : 'failed')
    }
    const onStatus = (status: number) => {
      const isFailing = http.method === 'GET' && status >= FIRST_FAILING_STATUS
      settle(isFailing ? 'failed' : 'answered')
    }
    const { host, port } = question.target
    const socket = dial(question)
    socket.on('error', onError)
    socket.once('connect', () => {
      isConnected = true
    })
    if (http.http2) sendHttp2(socket, http, { onStatus, onError })
    else sendHttp1(socket, { ...http, host, port }, { onStatus, onError })
  })
}

/** Who is told what came of a question. */
interface Asker {
  onStatus(status: number): void
  onError(error: Error): void
}

function sendHttp1(
  socket: Socket,
  { method, path, host, port }: HttpQuestion & ForwardTarget,
  { onStatus, onError }: Asker,
): void {
  const headers = { connection: 'close', 'user-agent': USER_AGENT }
  const createConnection = () => socket
  // With an agent, also with `false`, Node would open another connection, to an address of its choice.
  request({ method, path, host, port, headers, createConnection })
    .on('response', ({ statusCode = 0 }) => onStatus(statusCode))
    .on('error', onError)
    .end()
}

function sendHttp2(
  socket: Socket,
  { method, path }: HttpQuestion,
  { onStatus, onError }: Asker,
): void {
  const session = connect('http://localhost', { createConnection: () => socket })
  session.on('error', onError)
  session.on('close', () => onError(new Error('closed')))
  socket.once('close', () => session.destroy())
  session
    .request({ ':method': method, ':path': path, 'user-agent': USER_AGENT })
    .on('response', (headers) => onStatus(headers[':status'] ?? 0))
    .on('error', onError)
    .end()
}

/** A port without a listener refuses; only a connection that was taken is reset. */
function isReset(error: Error): boolean {
  return 'code' in error && error.code === 'ECONNRESET'
}

function isExhausted(error: Error): boolean {
  return 'code' in error && EXHAUSTED.has(String(error.code))
}
