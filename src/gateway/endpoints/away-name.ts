import type { EndpointAddress, EndpointProtocol } from '../records/endpoint-protocol.ts'

/** What stays of an endpoint when its device is away. */
export interface NameFacts extends EndpointAddress {
  readonly ownerId: string | null
  readonly url: string
  /** Whether policies of other accounts find it. */
  readonly isShared: boolean
  /** What it was bound with. */
  readonly credentialId: string
  /** The device that had it, where that says what it is. */
  readonly deviceId?: string | undefined
  /** The gateway has chosen it, for this endpoint: it is given to it again. */
  readonly drawn?: { readonly endpointId: string; readonly forwardsTo: string } | undefined
  /** Others may bring it back, too. */
  readonly isPooled?: boolean | undefined
}

/** How much waits, of a name, of a client, of the gateway. */
export class HeldLoad {
  requests = 0
  bytes = 0
}

/** A request that waits for a device to come back. */
export interface HeldRequest {
  /** Whose share of the places it takes: the IPv4 address, or the /64 of an IPv6 one. */
  readonly network: string
  /** What it may keep in memory. */
  readonly bytes: number
  /** The name is online, or forgotten: whoever looks it up again finds what is so now. */
  onNameChange(): void
}

/** A name whose device was here a moment ago, and did not say that it gives it up. */
export class AwayName implements NameFacts {
  readonly type = 'away'
  readonly host: string
  readonly ownerId: string | null
  readonly protocol: EndpointProtocol
  readonly url: string
  readonly isShared: boolean
  readonly credentialId: string
  readonly deviceId: string | undefined
  readonly drawn: NameFacts['drawn']
  readonly isPooled: boolean
  /** Until then requests may wait for it; monotonic. */
  heldUntil: number
  /** From then on nobody knows that it was here; monotonic. */
  readonly forgottenAt: number
  readonly waiting = new Set<HeldRequest>()
  readonly load = new HeldLoad()

  constructor(facts: NameFacts, heldUntil: number, forgottenAt: number) {
    this.host = facts.host
    this.ownerId = facts.ownerId
    this.protocol = facts.protocol
    this.url = facts.url
    this.isShared = facts.isShared
    this.credentialId = facts.credentialId
    this.deviceId = facts.deviceId
    this.drawn = facts.drawn
    this.isPooled = facts.isPooled === true
    this.heldUntil = heldUntil
    this.forgottenAt = forgottenAt
  }

  isHeld(now: number): boolean {
    return now < this.heldUntil
  }
}
