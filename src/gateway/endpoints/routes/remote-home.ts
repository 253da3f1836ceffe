import type { EndpointAddress, Entrance } from '../../records/endpoint-protocol.ts'

/** A name whose endpoint is at home at another node. */
export interface RemoteHome extends EndpointAddress {
  readonly type: 'remote'
  readonly nodeId: string
  /** As its owner was told. */
  readonly url: string
  readonly ownerId: string | null
  /** TLS of its visitors ends at its home, because its policy says how. */
  readonly endsTls: boolean
}

/** Where in a cluster the endpoints are, as far as this node knows. It never waits for anybody. */
export interface Homes {
  /**
   * Who serves visitors of a host at an entrance, by the exact name, else by the longest wildcard
   * above it. Undefined: this node, or nobody.
   */
  find(entrance: Entrance, host: string): RemoteHome | undefined
  /** A name that this node is about to open: whoever comes sooner waits for that. */
  coming?(entrance: Entrance, host: string, ownerId: string | null): RemoteHome | undefined
  /** The same as `find` for policies of an account: an internal name of its own, else one that is shared. */
  findInternal(entrance: Entrance, host: string, ownerId: string | null): RemoteHome | undefined
}
