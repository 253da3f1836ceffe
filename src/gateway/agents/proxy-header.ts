import type { Endpoint } from '../endpoints/endpoint.ts'

/** The SDK's number for an endpoint that speaks HTTP. */
const HTTP_EDGE = '3'
const LENGTH_BYTES = 8

/** What a proxy stream starts with after its type: an int64 (little-endian) length, then JSON. */
export function encodeProxyHeader(
  { id, protocol }: Pick<Endpoint, 'id' | 'protocol'>,
  clientAddr: string,
): Buffer {
  const json = JSON.stringify({
    Id: id,
    ClientAddr: clientAddr,
    Proto: protocol,
    EdgeType: HTTP_EDGE,
    PassthroughTLS: false,
  })
  const header = Buffer.allocUnsafe(LENGTH_BYTES + Buffer.byteLength(json))
  header.writeBigInt64LE(BigInt(header.length - LENGTH_BYTES))
  header.write(json, LENGTH_BYTES)
  return header
}
