import type { EndpointAddress, OwnedAddress } from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'

/** Who serves a name that is about to come online. */
export interface NameHolder {
  readonly id: string
  /** Given to the agent, which presents it again when it comes back. */
  readonly clientId: string
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  readonly identity: {
    readonly credentialId: string
    readonly deviceId: string | undefined
    readonly instance: string | undefined
    readonly legNumber?: number
  }
}

/** Thrown when another connection of the same client serves the name at another node. */
export class HeldByLegError extends ServiceError {
  readonly url: string

  constructor(url: string) {
    super(334, `The endpoint ${url} is already online.`)
    this.url = url
  }
}

/** What a claim calls the client of a session: each of its connections has a text of its own. */
export function claimClientId({ clientId, identity: { legNumber = 0 } }: NameHolder): string {
  return legNumber === 0 ? clientId : `${clientId} ${legNumber}`
}

/** Whether two claims are of two connections of one client. */
export function isOtherLeg(one: string | null, other: string | null): boolean {
  if (one === null || other === null || one === other) return false
  return one.split(' ')[0] === other.split(' ')[0]
}

/** A name that is about to come online. */
export interface WantedName extends EndpointAddress {
  /** As its owner is told. */
  readonly url: string
  readonly ownerId: string | null
  /** All accounts find this internal name. */
  readonly isShared: boolean
  /** Its place in a pool; empty for a name that one endpoint has alone. */
  readonly member: string
  /** TLS of its visitors ends where it is at home. */
  readonly endsTls: boolean
  /** Undefined for a cloud endpoint. */
  readonly session: NameHolder | undefined
  /** What its policy counts goes on where the name was before; unset for one that is new. */
  readonly policy?: { readonly states: ReadonlyMap<string, unknown> }
}

/** A name that is online, or about to be. */
export interface OnlineName extends EndpointAddress {
  readonly ownerId: string | null
  readonly poolMember?: string | undefined
}

/** What a credential uses at other gateways, as far as this one has heard. */
export interface UsageElsewhere {
  /** No less than what the others say, and said at once. */
  mostOf(credentialId: string): number
  /** Those with endpoints. One of the device that asks is about to come here, and left out. */
  sessionsOf(
    credentialId: string,
    device: { readonly clientId: string; readonly deviceId: string | undefined },
  ): number
  /** But for the name that is bound here: that moves. */
  endpointsOf(credentialId: string, name: OnlineName): number
}

/** Where a credential uses nothing else. */
export const NO_USAGE: UsageElsewhere = {
  mostOf: () => 0,
  sessionsOf: () => 0,
  endpointsOf: () => 0,
}

/** Sees to it that a name is online at one gateway alone. */
export interface NameClaims {
  /**
   * Runs `open`, which brings the name online, once this gateway has it; when that throws, the name is
   * given up again. Throws ServiceError 334 when another has it, as a HeldByLegError when that is of the
   * same client, and 803 while nobody knows.
   */
  open<T>(wanted: WantedName, open: () => T | Promise<T>): Promise<T>
  /** Whether an endpoint that is online here is at home here: cloud endpoints are online at all. */
  isHome(name: OnlineName): boolean
  /** Names that are online at the other gateways. */
  elsewhere(): Iterable<OwnedAddress>
  /** The same of devices alone. */
  devicesElsewhere(): Iterable<OwnedAddress>
  readonly usage: UsageElsewhere
}

/** Where there is one gateway, its registry knows of all names. */
export const ALONE: NameClaims = {
  open: async (_wanted, open) => open(),
  isHome: () => true,
  elsewhere: () => [],
  devicesElsewhere: () => [],
  usage: NO_USAGE,
}
