import type { Socket } from 'node:net'
import process from 'node:process'
import { request } from '../../base/net/node-http.ts'

/** A request for the status of the answer only. */
export interface HttpQuestion {
  readonly method: 'GET' | 'HEAD'
  readonly path: string
  /** By prior knowledge, or as negotiated by TLS. */
  readonly http2: boolean
  /** Host and port as in a URL. Default: localhost. */
  readonly authority?: string | undefined
}

const USER_AGENT = 'device-agent'

/**
 * Sends a request on an open connection and resolves with the status of the answer. Rejects without an
 * answer.
 */
export function requestStatus(socket: Socket, question: HttpQuestion): Promise<number> {
  return new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('closed')))
    if (question.http2) sendHttp2(socket, question, { resolve, reject })
    else sendHttp1(socket, question, { resolve, reject })
  })
}

interface Asker {
  resolve(status: number): void
  reject(error: Error): void
}

function sendHttp1(socket: Socket, question: HttpQuestion, { resolve, reject }: Asker): void {
  const { method, path, authority = 'localhost' } = question
  const headers = { host: authority, connection: 'close', 'user-agent': USER_AGENT }
  // With an `agent` option, including `false`, Node would open another connection to a different address.
  const createConnection = () => socket
  request({ method, path, headers, createConnection })
    .on('response', ({ statusCode = 0 }) => resolve(statusCode))
    .on('error', reject)
    .end()
}

function sendHttp2(socket: Socket, question: HttpQuestion, { resolve, reject }: Asker): void {
  const { method, path, authority = 'localhost' } = question
  // Loaded on demand: an import would load it at every start.
  const { connect } = process.getBuiltinModule('node:http2')
  const session = connect(`http://${authority}`, { createConnection: () => socket })
  session.on('error', reject)
  session.on('close', () => reject(new Error('closed')))
  socket.once('close', () => session.destroy())
  session
    .request({ ':method': method, ':path': path, 'user-agent': USER_AGENT })
    .on('response', (headers) => resolve(headers[':status'] ?? 0))
    .on('error', reject)
    .end()
}
