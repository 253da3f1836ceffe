import type { Duplex } from 'node:stream'
import type { AddressRanges } from '../../base/net/network.ts'
import type { AddressTable } from '../exchange/address-tables.ts'
import type { Connection } from '../exchange/policy-exchange.ts'
import type { Account } from '../expression/cost/account.ts'
import type { DialTarget } from './outbound-allow.ts'

/** For whom a policy asks another server. */
export interface Asker {
  /** That of the visitor whose request the policy judges. */
  readonly connection: Connection
  /** How many policies have asked each other up to this request: 1 for that of a visitor's. */
  readonly depth: number
  /** Of that request: what the policies of internal endpoints compute for it counts, too. */
  readonly account?: Account
}

/** How policies reach beyond the exchange they run for. */
export interface PolicyReach {
  /** Whether an internal endpoint with this URL is online; without it nothing can be forwarded. */
  readonly hasInternal?: ((url: URL) => boolean) | undefined
  /**
   * Opens a connection to an internal endpoint, whose policy judges what comes as if the asker's
   * visitor had been handed on; undefined when it is offline.
   */
  readonly connectInternal?:
    | ((url: URL, asker: Asker | undefined) => Duplex | undefined)
    | undefined
  /** The value of `x-policy-hops` in requests to others, which may be this gateway again. */
  readonly sealDepth?: ((depth: number) => string) | undefined
  /** The ranges of an IP policy as they are now; undefined when there is no such policy. */
  readonly ipPolicy?: ((id: string) => AddressRanges | undefined) | undefined
  /** Where http-request and key downloads may connect to; unless given, to no address at all. */
  readonly mayDial?: ((target: DialTarget) => boolean) | undefined
  /**
   * 32 bytes that only policies of this account have for this purpose, the same after a restart;
   * without it sessions last as long as the policy.
   */
  readonly secretFor?: ((purpose: string) => Buffer) | undefined
  /** Whether there is a table of addresses; where nobody knows, expressions may ask for each. */
  readonly hasTable?: ((table: AddressTable) => boolean) | undefined
  /** Which files with keys may be read, by their paths; unless given, none. */
  readonly mayRead?: ((path: string) => boolean) | undefined
}
