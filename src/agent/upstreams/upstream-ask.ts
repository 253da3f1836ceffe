import { request } from 'node:http'
import { createConnection, type LookupFunction } from 'node:net'
import type { ForwardTarget } from './forward-target.ts'
import type { UpstreamEvent } from './upstream-state.ts'

/** How a service is asked: a bare connection, or a request for a path. */
export interface UpstreamQuestion {
  readonly target: ForwardTarget
  /** Undefined: whether it takes a connection. */
  readonly http: { readonly method: 'GET' | 'HEAD'; readonly path: string } | undefined
  readonly withinMs: number
  readonly lookup: LookupFunction | undefined
}

/** `exhausted`: it could not be asked, because this process has no descriptors or memory left. */
export type UpstreamAnswer = UpstreamEvent | 'exhausted'

const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS'])
/** A path that is asked for by the owner's wish has to answer below. */
const FIRST_FAILING_STATUS = 500

/** Asks once; never throws. */
export function askUpstream(question: UpstreamQuestion): Promise<UpstreamAnswer> {
  return question.http ? askHttp(question, question.http) : tryConnect(question)
}

function tryConnect({ target, withinMs, lookup }: UpstreamQuestion): Promise<UpstreamAnswer> {
  const { host, port } = target
  return new Promise((resolve) => {
    const socket = createConnection({ host, port, ...(lookup && { lookup }) })
    const settle = (answer: UpstreamAnswer) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => settle('failed'), withinMs)
    socket.once('connect', () => settle('connected'))
    socket.on('error', (error) => {
      if (isExhausted(error)) settle('exhausted')
      else settle(isReset(error) ? 'connected' : 'failed')
    })
  })
}

function askHttp(
  { target, withinMs, lookup }: UpstreamQuestion,
  { method, path }: { method: 'GET' | 'HEAD'; path: string },
): Promise<UpstreamAnswer> {
  const { host, port } = target
  return new Promise((resolve) => {
    let isConnected = false
    const asked = request({
      method,
      path,
      host,
      port,
      agent: false,
      headers: { connection: 'close', 'user-agent': 'device-agent' },
      ...(lookup && { lookup }),
    })
    const settle = (answer: UpstreamAnswer) => {
      clearTimeout(timer)
      asked.destroy()
      resolve(answer)
    }
    const timer = setTimeout(() => settle(isConnected ? 'hung' : 'failed'), withinMs)
    asked.on('socket', (socket) => {
      socket.once('connect', () => {
        isConnected = true
      })
    })
    asked.on('response', ({ statusCode = 0 }) => {
      const isFailing = method === 'GET' && statusCode >= FIRST_FAILING_STATUS
      settle(isFailing ? 'failed' : 'answered')
    })
    asked.on('error', (error) => {
      if (isExhausted(error)) settle('exhausted')
      else settle(isConnected || isReset(error) ? 'garbled' : 'failed')
    })
    asked.end()
  })
}

/** A port without a listener refuses; only a connection that was taken is reset. */
function isReset(error: Error): boolean {
  return 'code' in error && error.code === 'ECONNRESET'
}

function isExhausted(error: Error): boolean {
  return 'code' in error && EXHAUSTED.has(String(error.code))
}
