import { createServer, type RequestListener } from 'node:http'
import { createServer as createTcpServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')

/** `TCP4 <client> <server> <client port> <server port>`, or `UNKNOWN`. */
export interface ProxyHead {
  readonly text: string
  readonly rest: Buffer
}

/** Reads a PROXY header of either version, as servers do; undefined while it is not all there. */
export function readProxyHead(bytes: Buffer): ProxyHead | undefined {
  if (bytes.subarray(0, 12).equals(SIGNATURE)) {
    if (bytes.length < 16) return undefined
    const end = 16 + bytes.readUInt16BE(14)
    if (bytes.length < end) return undefined
    const rest = bytes.subarray(end)
    if (bytes[12] === 0x20) return { text: 'UNKNOWN', rest }
    if (bytes[12] !== 0x21 || bytes[13] !== 0x11) throw new Error('not PROXY over TCP and IPv4')
    const ip = (at: number) => [...bytes.subarray(at, at + 4)].join('.')
    const ports = `${bytes.readUInt16BE(24)} ${bytes.readUInt16BE(26)}`
    return { text: `TCP4 ${ip(16)} ${ip(20)} ${ports}`, rest }
  }
  const end = bytes.indexOf('\r\n')
  if (end === -1) return undefined
  const line = bytes.subarray(0, end).toString()
  if (!line.startsWith('PROXY ')) throw new Error(`no PROXY header: ${line.slice(0, 40)}`)
  return { text: line.slice('PROXY '.length), rest: bytes.subarray(end + 2) }
}

/** Calls back behind the header of a connection; one without a header is broken off. */
export function afterProxyHead(socket: Socket, then: (head: ProxyHead) => void): void {
  let bytes: Buffer = Buffer.alloc(0)
  socket.on('error', () => {})
  socket.on('data', function onData(chunk: Buffer) {
    bytes = Buffer.concat([bytes, chunk])
    try {
      const head = readProxyHead(bytes)
      if (!head) return
      socket.off('data', onData)
      socket.pause()
      then(head)
    } catch {
      socket.destroy()
    }
  })
}

/** An HTTP service that wants a PROXY header on each connection, and knows what was in it. */
export async function startProxiedService(
  answer: (head: string, ...exchange: Parameters<RequestListener>) => void,
): Promise<{ readonly port: number; readonly connections: readonly string[] }> {
  const heads = new WeakMap<Socket, string>()
  const connections: string[] = []
  const http = createServer((request, response) => {
    answer(heads.get(request.socket) ?? '', request, response)
  })
  const server = createTcpServer((socket) =>
    afterProxyHead(socket, ({ text, rest }) => {
      heads.set(socket, text)
      connections.push(text)
      if (rest.length > 0) socket.unshift(rest)
      http.emit('connection', socket)
      socket.resume()
    }),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    http.closeAllConnections()
    server.close()
  })
  return { port: (server.address() as { port: number }).port, connections }
}
