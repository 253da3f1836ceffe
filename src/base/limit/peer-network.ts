import { networkOf } from './network.ts'

/** How an IPv4 address looks on a socket that takes both families. */
const MAPPED = '::ffff:'

/** The network of a socket's peer; all who have no address, as on a unix socket, are one. */
export function peerNetwork(address = ''): string {
  return networkOf(address.startsWith(MAPPED) ? address.slice(MAPPED.length) : address)
}
