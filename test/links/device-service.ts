/**
 * A service of a device, as a process: `device-service.ts <host>` prints its port, and that of a gRPC
 * server that echoes. HTTP/1.1 and HTTP/2 without TLS on one port: `/` answers 5 bytes, `/down?bytes` as many, and an upload its size.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server } from 'node:http2'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { startGrpcServer } from '../helpers/grpc.ts'

const [host = '127.0.0.1'] = process.argv.slice(2)
const PIECE = Buffer.alloc(65_536, 'device')
const PREFACE = 'PRI'

function* pieces(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= PIECE.length) yield PIECE.subarray(0, left)
}

async function answer(
  method: string | undefined,
  path: string | undefined,
  body: Readable,
  response: Writable,
): Promise<void> {
  const wanted = /^\/down\?(\d+)$/.exec(path ?? '')?.[1]
  if (wanted !== undefined) {
    await pipeline(pieces(Number(wanted)), response)
    return
  }
  let bytes = 0
  for await (const chunk of body) bytes += (chunk as Buffer).length
  response.end(method === 'PUT' ? String(bytes) : 'hello')
}

const plain = createServer((request: IncomingMessage, response: ServerResponse) => {
  answer(request.method, request.url, request, response).catch(() => response.destroy())
})
// Go's windows: with the 64 KiB of Node these would be what is measured.
const http2 = createHttp2Server({ settings: { initialWindowSize: 1_048_576 } })
http2.on('session', (session) => {
  session.on('error', () => {})
  session.setLocalWindowSize(1_048_576)
})
http2.on('stream', (stream, headers) => {
  stream.on('error', () => {})
  stream.respond({ ':status': 200 })
  answer(headers[':method'], headers[':path'], stream, stream).catch(() => stream.destroy())
})

const server = createTcpServer((socket) => {
  socket.on('error', () => {})
  socket.once('readable', () => {
    const first = socket.read() as Buffer | null
    if (first === null) {
      socket.destroy()
      return
    }
    socket.unshift(first)
    const isHttp2 = first.subarray(0, PREFACE.length).equals(Buffer.from(PREFACE))
    ;(isHttp2 ? http2 : plain).emit('connection', socket)
  })
})
server.listen(0, host)
await once(server, 'listening')
const grpc = await startGrpcServer({}, host)
process.stdout.write(`${(server.address() as AddressInfo).port} ${grpc.port}\n`)
process.stdin.on('end', () => process.exit(0)).resume()
