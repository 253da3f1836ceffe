import { once } from 'node:events'
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type SecureClientSessionOptions,
} from 'node:http2'
import { connect as tlsConnect } from 'node:tls'
import { onTestFinished } from 'vitest'
import type { IngressSite } from './ingress-site.ts'

/** What a visitor got on one stream. */
export interface StreamAnswer {
  readonly status: number | undefined
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  readonly trailers: IncomingHttpHeaders
  /** Statuses of interim responses, in turn. */
  readonly interims: readonly (number | undefined)[]
  /** How the stream ended; 0 is well. */
  readonly code: number | undefined
}

/** An HTTP/2 connection to a site, which closes with the running test. */
export async function connectHttp2(
  { addresses, caPem }: Pick<IngressSite, 'addresses' | 'caPem'>,
  { servername = 'a.test', ...options }: SecureClientSessionOptions = {},
): Promise<ClientHttp2Session> {
  const session = connect(`https://a.test:${addresses.https.port}`, {
    ...options,
    createConnection: () =>
      tlsConnect({
        host: '127.0.0.1',
        port: addresses.https.port,
        servername,
        ca: caPem,
        ALPNProtocols: ['h2'],
        checkServerIdentity: () => undefined,
      }),
  })
  session.on('error', () => {})
  onTestFinished(() => session.destroy())
  await once(session, 'connect')
  return session
}

/** Sends a request; the caller sees to a body when it asks for one with `endStream: false`. */
export function openStream(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders = {},
  endStream = true,
): ClientHttp2Stream {
  const stream = session.request({ ':authority': 'a.test', ...headers }, { endStream })
  stream.on('error', () => {})
  return stream
}

/** Everything that comes on a stream, when it has closed. */
export async function answerOf(stream: ClientHttp2Stream): Promise<StreamAnswer> {
  const chunks: Buffer[] = []
  const interims: (number | undefined)[] = []
  let headers: IncomingHttpHeaders = {}
  let trailers: IncomingHttpHeaders = {}
  stream.on('headers', (interim) => interims.push(interim[':status']))
  stream.on('response', (got) => {
    headers = got
  })
  stream.on('trailers', (got) => {
    trailers = got
  })
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  if (!stream.closed) await new Promise<void>((resolve) => stream.once('close', resolve))
  const body = Buffer.concat(chunks)
  const status = headers[':status'] as number | undefined
  return { status, headers, body, trailers, interims, code: stream.rstCode }
}
