import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { claimClientId, isOtherLeg, type NameHolder } from '../access/name-claims.ts'
import {
  type DeviceMark,
  type DisconnectedName,
  isSameDevice,
} from '../endpoints/disconnected-name.ts'
import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import type { EndpointPolicies, PlacedStates } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { MovingSession } from '../ports/membership.ts'
import type { MovedLimits } from './moved-limits.ts'
import { DRAIN_MS } from './node-drain.ts'
import type { Claim } from './nodes/claim.ts'

/** A device that takes its names to another node is thought to take the next one within it. */
const NEXT_NAME_MS = 10_000
/** As long as where both processes of a device come to one node. */
const ANSWER_MS = 2_000

export interface NameTransferOptions {
  readonly registry: EndpointRegistry
  readonly sessionOf: (id: string) => MovingSession | undefined
  readonly policies: Pick<EndpointPolicies, 'last'>
  readonly limits: Pick<MovedLimits, 'give' | 'hasCounted'>
  /** Whether this node is draining. */
  readonly isDraining: () => boolean
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Relation of the requesting endpoint. `same`: of the same process, or its remains; names follow it. `leg`:
 * another connection of the same client. `rival`: another process of the same device. `stranger`: any other.
 */
type Relation = 'same' | 'leg' | 'rival' | 'stranger'

type States = PlacedStates['states']

/** Gives up the names of devices that have moved to another node. */
export class NameTransfer {
  readonly #options: NameTransferOptions
  /** An endpoint is asked for more than once while its session is listened to. */
  readonly #asked = new Map<Claim, Promise<boolean>>()

  constructor(options: NameTransferOptions) {
    this.#options = options
  }

  /** Names of devices that disconnected a moment ago, and whose counts are still here to be fetched. */
  get expected(): number {
    const { registry, policies, limits } = this.#options
    let number = 0
    for (const name of registry.allDisconnected()) {
      const states = registry.isHeld(name) && policies.last(name)?.states
      if (states && limits.hasCounted(states)) number += 1
    }
    return number
  }

  /** Whether a name goes to another node. It is then no longer served here, and visitors wait. */
  give(own: Claim, wanted: Claim): Promise<boolean> {
    const asked = this.#asked.get(own) ?? this.#give(own, wanted)
    this.#asked.set(own, asked)
    return asked.finally(() => this.#asked.delete(own))
  }

  /** Another node has a name that this node did not release. */
  lost(own: Claim, { facts }: Pick<Claim, 'facts'>): void {
    const endpoint = this.#endpointOf(own)
    if (!endpoint) return
    const { log } = this.#options
    log.warn({ endpoint: endpoint.id, url: endpoint.url }, 'another node now serves the name')
    const session = this.#options.sessionOf(endpoint.sessionId)
    const relation = session ? relationOf(session, facts) : 'same'
    if (session && relation !== 'same' && relation !== 'leg') {
      session.stopTunnel(endpoint, 334, `The endpoint ${endpoint.url} is online on another node.`)
    } else this.#move(endpoint, session)
  }

  /** The counters of the policy of a name, in force or the last one here. */
  statesOf({ key, facts: { protocol, ownerId } }: Claim): States | undefined {
    const { registry, policies } = this.#options
    const { host, member: poolMember } = key
    const holder = registry
      .holdersOf({ protocol, host }, ownerId)
      .find((it) => (it.poolMember ?? '') === poolMember)
    return (holder?.policy ?? policies.last({ protocol, host, ownerId, poolMember }))?.states
  }

  async #give(own: Claim, { facts }: Claim): Promise<boolean> {
    const { sessionOf, limits } = this.#options
    const endpoint = this.#endpointOf(own)
    if (!endpoint) return this.#giveWithout(own, facts)
    if (facts.ownerId !== endpoint.ownerId || facts.protocol !== endpoint.protocol) return false
    const session = sessionOf(endpoint.sessionId)
    if (session) {
      const relation = relationOf(session, facts)
      if (relation === 'stranger') return false
      if (relation === 'rival' || relation === 'leg') {
        if (await session.answers(ANSWER_MS)) return false
        const reason = `the device connected to another node with another ${relation === 'leg' ? 'leg' : 'process'}`
        session.end(reason, relation === 'leg' ? 'silent' : 'duplicate')
      }
    }
    this.#move(endpoint, session)
    // From here on nothing is counted: requests wait.
    limits.give(own, endpoint.policy.states)
    return true
  }

  /** A name without a connected device, or of a cloud endpoint. */
  #giveWithout(own: Claim, wanted: Claim['facts']): boolean {
    const { registry, limits, isDraining } = this.#options
    const { key, facts } = own
    const { protocol, ownerId } = facts
    const away = registry.disconnectedAt({ protocol, host: key.host }, ownerId)
    const isForOther = away && registry.isHeld(away) && !isSameDevice(away, markOf(wanted))
    if (isForOther && !away.isPooled && wanted.kind === 'agent') return false
    const holders = registry.holdersOf({ protocol, host: key.host }, ownerId)
    const isCloud = holders.some(
      ({ type, poolMember = '' }) => type === 'cloud' && poolMember === key.member,
    )
    // A name without a device is not moved, except that of a cloud endpoint in a drain.
    if (!(isCloud && isDraining()) && holders.length > 0) return false
    if (away) this.#goOn(away, wanted)
    limits.give(own, this.statesOf(own) ?? new Map())
    return true
  }

  /** A device binds its names at another node: visitors wait for the others here while it does so. */
  #goOn(away: DisconnectedName, wanted: Claim['facts']): void {
    const { registry, clock } = this.#options
    const device = markOf(wanted)
    if (!isSameDevice(away, device)) return
    if (away.returning) away.returning.goOn(clock.monotonic() + NEXT_NAME_MS)
    else registry.startReturn({ ...device, ownerId: wanted.ownerId }, NEXT_NAME_MS)
  }

  #move(endpoint: AgentEndpoint, session: MovingSession | undefined): void {
    const { registry, isDraining } = this.#options
    const { credentialId = '', deviceId, instance } = session?.identity ?? {}
    registry.suspend(endpoint, { credentialId, deviceId, instance })
    session?.giveWay(endpoint, undefined, isDraining() ? DRAIN_MS : undefined)
  }

  #endpointOf({ key, facts: { protocol, ownerId } }: Claim): AgentEndpoint | undefined {
    return this.#options.registry
      .holdersOf({ protocol, host: key.host }, ownerId)
      .filter((endpoint) => endpoint.type === 'agent')
      .find(({ poolMember = '' }) => poolMember === key.member)
  }
}

function relationOf(session: NameHolder, facts: Claim['facts']): Relation {
  const { identity } = session
  const clientId = claimClientId(session)
  if (clientId === facts.clientId) return 'same'
  if (isOtherLeg(clientId, facts.clientId)) return 'leg'
  const { deviceId, instance } = identity
  if (deviceId === undefined || !isSameDevice(identity, markOf(facts))) return 'stranger'
  const isNamed = instance !== undefined && facts.instance !== null
  return isNamed && instance !== facts.instance ? 'rival' : 'same'
}

/** Identity of the device of a claim. */
export function markOf({ credentialId, deviceId, instance }: Claim['facts']): DeviceMark {
  return {
    credentialId: credentialId ?? '',
    deviceId: deviceId ?? undefined,
    instance: instance ?? undefined,
  }
}
