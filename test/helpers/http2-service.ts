import { once } from 'node:events'
import {
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from 'node:http2'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

export interface Http2Service {
  readonly port: number
  readonly server: Http2Server
  /** All connections so far, in the order they came. */
  readonly sessions: readonly ServerHttp2Session[]
}

/** A device's service that speaks HTTP/2 alone, without TLS; closed with the running test. */
export async function startHttp2Service(
  serve: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  options: ServerOptions = {},
): Promise<Http2Service> {
  const sessions: ServerHttp2Session[] = []
  const server = createServer(options)
  server.on('session', (session) => {
    session.on('error', () => {})
    sessions.push(session)
  })
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {})
    serve(stream, headers)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const session of sessions) session.destroy()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, server, sessions }
}

/** All that comes on a stream. */
export async function contentOf(stream: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}
