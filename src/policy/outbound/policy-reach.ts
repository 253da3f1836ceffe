import type { Duplex } from 'node:stream'
import type { AddressRanges } from '../../base/cidr.ts'

/** How policies reach beyond the exchange they run for. */
export interface PolicyReach {
  /** Whether an internal endpoint with this URL is online; without it nothing can be forwarded. */
  readonly hasInternal?: ((url: URL) => boolean) | undefined
  /** Opens a byte stream to an internal endpoint; undefined when it is offline. */
  readonly connectInternal?: ((url: URL) => Duplex | undefined) | undefined
  /** The ranges of an IP policy as they are now; undefined when there is no such policy. */
  readonly ipPolicy?: ((id: string) => AddressRanges | undefined) | undefined
  /** Which addresses http-request and key downloads may reach; private networks unless given. */
  readonly mayReach?: ((ip: string) => boolean) | undefined
}
