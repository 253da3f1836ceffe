import type { EndpointAddress, OwnedAddress } from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'

/** The session that serves a name which is about to come online. */
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

/** Thrown if another connection of the same client serves the name at another node. */
export class HeldByLegError extends ServiceError {
  readonly url: string

  constructor(url: string) {
    super(334, `The endpoint ${url} is already online.`)
    this.url = url
  }
}

/** Thrown while PostgreSQL is away, which confirms names. The agent is told when to try again. */
export class UnconfirmedNameError extends ServiceError {
  constructor(message: string) {
    super(803, message)
  }
}

/** Client id of a session in a claim; different for each connection of the client. */
export function claimClientId({ clientId, identity: { legNumber = 0 } }: NameHolder): string {
  return legNumber === 0 ? clientId : `${clientId} ${legNumber}`
}

/** Whether two claims belong to different connections of the same client. */
export function isOtherLeg(one: string | null, other: string | null): boolean {
  if (one === null || other === null || one === other) return false
  return one.split(' ')[0] === other.split(' ')[0]
}

/** A name that is about to come online. */
export interface WantedName extends EndpointAddress {
  /** As reported to its owner. */
  readonly url: string
  readonly ownerId: string | null
  /** Whether all accounts can reach this internal name. */
  readonly isShared: boolean
  /** Its member id in a pool; empty without pooling. */
  readonly member: string
  /** Whether the serving node terminates TLS of its visitors. */
  readonly endsTls: boolean
  /** Undefined for a cloud endpoint. */
  readonly session: NameHolder | undefined
  /** Its counters continue at the node that served the name before. Unset for a new name. */
  readonly policy?: { readonly states: ReadonlyMap<string, unknown> }
}

/** A name that is online, or about to be. */
export interface OnlineName extends EndpointAddress {
  readonly ownerId: string | null
  readonly poolMember?: string | undefined
}

/** Usage of a credential at other gateways, as far as this gateway knows. */
export interface UsageElsewhere {
  /** Upper limit of the other counts; fast. */
  mostOf(credentialId: string): number
  /**
   * Number of sessions with endpoints. Excludes a session of the given device, which is about to move here.
   */
  sessionsOf(
    credentialId: string,
    device: { readonly clientId: string; readonly deviceId: string | undefined },
  ): number
  /** Number of endpoints. Excludes the name that is bound here, because it moves. */
  endpointsOf(credentialId: string, name: OnlineName): number
}

/** For a single gateway: no usage elsewhere. */
export const NO_USAGE: UsageElsewhere = {
  mostOf: () => 0,
  sessionsOf: () => 0,
  endpointsOf: () => 0,
}

/** Ensures that a name is online at only one gateway. */
export interface NameClaims {
  /**
   * Claims the name, then runs `open`, which brings it online. Releases the name if `open` throws. Throws
   * ServiceError 334 if another gateway has the name (HeldByLegError if it belongs to the same client).
   * Throws 803 while the state is unknown.
   */
  open<T>(wanted: WantedName, open: () => T | Promise<T>): Promise<T>
  /**
   * Whether this gateway is the serving node of an endpoint that is online here. Cloud endpoints are online
   * at all gateways.
   */
  isHome(name: OnlineName): boolean
  /** Names that are online at other gateways. */
  elsewhere(): Iterable<OwnedAddress>
  /** The same, only endpoints of devices. */
  devicesElsewhere(): Iterable<OwnedAddress>
  readonly usage: UsageElsewhere
}

/** For a single gateway: its registry knows all names. */
export const ALONE: NameClaims = {
  open: async (_wanted, open) => open(),
  isHome: () => true,
  elsewhere: () => [],
  devicesElsewhere: () => [],
  usage: NO_USAGE,
}
