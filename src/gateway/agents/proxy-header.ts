import type { Endpoint } from '../endpoints/endpoint.ts'
import type { EndpointProtocol } from '../records/endpoint-protocol.ts'

/** The SDK's numbers for what an endpoint speaks. */
const EDGE_TYPES: Readonly<Record<EndpointProtocol, string>> = {
  tcp: '1',
  tls: '2',
  http: '3',
  https: '3',
}
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
    EdgeType: EDGE_TYPES[protocol],
    PassthroughTLS: false,
  })
  const header = Buffer.allocUnsafe(LENGTH_BYTES + Buffer.byteLength(json))
  header.writeBigInt64LE(BigInt(header.length - LENGTH_BYTES))
  header.write(json, LENGTH_BYTES)
  return header
}
