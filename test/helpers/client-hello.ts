import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { connect } from 'node:tls'

const RECORD_HEADER_BYTES = 5

/** What Node's client says first, as it stands on the wire: one record. */
export async function capturedHello(servername: string): Promise<Buffer> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const client = connect({ port, host: '127.0.0.1', servername })
  client.on('error', () => {})
  const [socket] = (await once(server, 'connection')) as [Socket]
  const [bytes] = (await once(socket, 'data')) as [Buffer]
  client.destroy()
  socket.destroy()
  server.close()
  return bytes
}

/** The same message in records of so many bytes. */
export function inRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(RECORD_HEADER_BYTES)
  const records: Buffer[] = []
  for (let at = 0; at < message.length; at += size) {
    records.push(handshakeRecord(message.subarray(at, at + size)))
  }
  return Buffer.concat(records)
}

export function handshakeRecord(body: Buffer): Buffer {
  const header = Buffer.from([22, 3, 1, 0, 0])
  header.writeUInt16BE(body.length, 3)
  return Buffer.concat([header, body])
}

const vector = (lengthBytes: 1 | 2 | 3, ...parts: Buffer[]) => {
  const body = Buffer.concat(parts)
  const length = Buffer.alloc(lengthBytes)
  length.writeUIntBE(body.length, 0, lengthBytes)
  return Buffer.concat([length, body])
}

/** An extension of a hello: its number and what stands in it. */
export const extension = (type: number, body: Buffer) =>
  Buffer.concat([Buffer.from([type >> 8, type & 255]), vector(2, body)])

/** That of server names (RFC 6066 3): each of a type, 0 for a host. */
export const serverNames = (...names: [type: number, name: string][]) =>
  extension(
    0,
    vector(
      2,
      ...names.map(([type, name]) =>
        Buffer.concat([Buffer.from([type]), vector(2, Buffer.from(name))]),
      ),
    ),
  )

/** The extension of application protocols (RFC 7301). */
export const applications = (protocols: readonly string[]) =>
  extension(16, vector(2, ...protocols.map((name) => vector(1, Buffer.from(name)))))

/** A message that a server can read and do nothing with; without extensions it has none at all. */
export function helloMessage(...extensions: Buffer[]): Buffer {
  const body = [
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    vector(1),
    vector(2, Buffer.from([0x13, 0x01])),
    vector(1, Buffer.from([0])),
    ...(extensions.length > 0 ? [vector(2, ...extensions)] : []),
  ]
  return Buffer.concat([Buffer.from([1]), vector(3, ...body)])
}
