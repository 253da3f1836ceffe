import { AppError } from '../../../base/app-error.ts'
import type { Actor, AuditedChange } from '../../../base/audit.ts'
import { FailureLimiter, TokenBuckets } from '../../../base/limiter.ts'
import { parseListenAddress } from '../../../base/listen-address.ts'
import type { Logger } from '../../../base/logger.ts'
import { peerNetwork } from '../../../base/net/network.ts'
import { hashToken, matchesHash, type Secret } from '../../../base/secret.ts'
import {
  type Claim,
  type Hello,
  JOIN_VERSION,
  type JoinRefusal,
  type Welcome,
} from '../../../join/join-messages.ts'
import { MAX_JOIN_ADDRESSES, makeJoinString, pinOf } from '../../../join/join-string.ts'
import type { AuditTrail } from '../../../store/audit-trail.ts'
import type { Database } from '../../../store/database.ts'
import { credentialOf, succeeded } from '../../access/authtoken-successors.ts'
import type { EndpointUrls } from '../../endpoints/endpoint-host.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import { idOfToken } from '../../records/resource-id.ts'
import { present, ServiceError } from '../../records/service-error.ts'
import {
  type AdmittedDevice,
  DeviceAdmission,
  type DeviceAdmissionDeps,
  fixedNameOf,
  JoinRefused,
  type KnownDevice,
  type NameHolder,
} from './device-admission.ts'
import type { Invite, InviteClaim, InviteClaimStore, InviteStore } from './invite-store.ts'
import { checkTerms, type InviteTerms } from './invite-terms.ts'

/** Invitations of an account. Those that ended are deleted after this time. */
const MAX_INVITES = 1_000
const KEPT_MS = 30 * 86_400_000
/** A device that lost the answer may ask again for this time, also after the end of the invitation. */
const RETRY_MS = 3_600_000
/** A hash that no secret has, so that an unknown id takes as long as a wrong secret. */
const NO_HASH = '0'.repeat(64)
/** Audit entries of refused devices: per address, and of all. */
const NOTED_OF_ADDRESS = { capacity: 5, refillPerS: 1 / 60, maxKeys: 1_000 }
const NOTED = { capacity: 60, refillPerS: 1 / 10, maxKeys: 1 }
/** Refused uses of an open invitation from an address, each of which is a transaction. */
const REFUSED_USES = { capacity: 10, refillPerS: 1 / 5, maxKeys: 1_000 }

/** Refusals that do not count as a failure, or have been counted already. */
const COUNTED: ReadonlySet<JoinRefusal> = new Set([
  'not-ready',
  'not-found',
  'too-many-failures',
  'withdrawn',
  'expired',
  'used',
])

export type InviteState = 'open' | 'used' | 'expired' | 'withdrawn'

export interface InvitesDeps extends DeviceAdmissionDeps {
  readonly database: Database
  readonly trail: AuditTrail
  readonly inviteStore: InviteStore
  readonly inviteClaims: InviteClaimStore
  readonly others: Pick<OtherGateways, 'count' | 'self' | 'all'>
  readonly urls: EndpointUrls
  /** CA certificate of the gateway, PEM. */
  readonly caPem: () => string
  /** Addresses of this gateway for agents, the best first. */
  readonly agentAddresses: () => readonly string[]
  readonly log: Logger
}

/** An invitation that was just created. */
export interface NewInvite {
  readonly invite: Invite
  readonly joinString: Secret
  /** Has the name of the invitation already. */
  readonly holder: NameHolder | undefined
}

/**
 * Invitations for devices, and the devices that join with them.
 *
 * INVARIANTS
 * - An invitation lets in at most `maxUses` devices, at all gateways together. Its use, the domain, the
 *   authtoken and the device are one transaction.
 * - Only the hash of the secret is stored. An unknown id and a wrong secret get the same answer.
 * - A device that asks again with its claim gets another authtoken. The earlier one ends with the first use of
 *   the new one. The rules stay as they are by now. The device may ask until the invitation is withdrawn, or its
 *   authtoken was revoked.
 */
export class Invites {
  readonly #deps: InvitesDeps
  readonly #admission: DeviceAdmission
  readonly #failures: FailureLimiter
  readonly #notedOfAddress: TokenBuckets
  readonly #noted: TokenBuckets
  readonly #refusedUses: TokenBuckets

  constructor(deps: InvitesDeps) {
    const { clock, others } = deps
    this.#deps = deps
    this.#admission = new DeviceAdmission(deps)
    this.#failures = new FailureLimiter(clock, () => others.count)
    this.#notedOfAddress = new TokenBuckets({ ...NOTED_OF_ADDRESS, clock })
    this.#noted = new TokenBuckets({ ...NOTED, clock })
    this.#refusedUses = new TokenBuckets({ ...REFUSED_USES, clock })
  }

  /**
   * Creates an invitation. The join string is only in this answer. `check` runs in the same transaction, and
   * may throw to refuse it. Throws a ServiceError.
   */
  async create(terms: InviteTerms, check: () => void): Promise<NewInvite> {
    const { database, inviteStore, botUsers, ids, clock } = this.#deps
    const addresses = this.addresses().flatMap((it) => parseListenAddress(it) ?? [])
    if (addresses.length === 0) {
      throw new ServiceError(
        860,
        'The gateway knows no address that devices can connect to. Set GATEWAY_PUBLIC_NAMES.',
      )
    }
    const pin = pinOf(this.#deps.caPem())
    const { id: joinId, secret, text } = makeJoinString({ pin, addresses })
    const createdAt = clock.now()
    const invite: Invite = {
      ...terms,
      id: ids.next('inv'),
      joinId,
      secretHash: hashToken(secret.reveal()),
      withdrawnAt: null,
      createdAt,
    }
    const { ownerId } = terms
    let holder: NameHolder | undefined
    const keep = () => {
      botUsers.checkOwner(ownerId)
      checkTerms(terms, createdAt)
      check()
      inviteStore.deleteEnded(ownerId, createdAt - KEPT_MS)
      if (inviteStore.count(ownerId) >= MAX_INVITES) {
        throw new ServiceError(
          861,
          `The account is at its limit of ${MAX_INVITES} invitations. They are deleted 30 days after their end.`,
        )
      }
      inviteStore.insert(invite)
      holder = this.#admission.nameHolder(invite)
    }
    await database.change(keep, { concludes: invite.id })
    return { invite, joinString: text, holder }
  }

  /** Ends an invitation. Devices that have joined with it stay. */
  async withdraw({ id }: Invite): Promise<void> {
    const { database, inviteStore, clock } = this.#deps
    const withdraw = () => {
      const invite = present(inviteStore.get(id))
      if (invite.withdrawnAt === null) inviteStore.replace({ ...invite, withdrawnAt: clock.now() })
    }
    await database.change(withdraw, { concludes: id, mayUseReserve: true })
  }

  /** Addresses for devices: those of this gateway, then those of the others of the cluster. */
  addresses(): readonly string[] {
    const { others, agentAddresses } = this.#deps
    const elsewhere = others
      .all()
      .filter(({ isSelf, serves }) => !isSelf && serves)
      .flatMap((gateway) => gateway.agentAddresses.slice(0, 2))
    return [...new Set([...agentAddresses(), ...elsewhere])].slice(0, MAX_JOIN_ADDRESSES)
  }

  /** First message to a device that joins: the CA certificate of this gateway and its time. */
  greeting(): Hello {
    const { caPem, clock } = this.#deps
    return { v: JOIN_VERSION, ca: caPem(), now: clock.now() }
  }

  usesOf({ id }: Invite): number {
    return this.#deps.inviteClaims.count(id)
  }

  /** The devices that joined last, newest first. */
  claimsOf({ id }: Invite, limit: number): InviteClaim[] {
    return this.#deps.inviteClaims.newest(id, limit)
  }

  stateOf(invite: Invite): InviteState {
    if (invite.withdrawnAt !== null) return 'withdrawn'
    if (this.usesOf(invite) >= invite.maxUses) return 'used'
    return this.#deps.clock.now() < invite.expiresAt ? 'open' : 'expired'
  }

  /**
   * Lets a device in. Resolves when everything is stored. Throws a JoinRefused. The answers to many refused
   * attempts of one address are delayed; `stop` ends the delay.
   */
  async join(claim: Claim, address: string, stop: AbortSignal): Promise<Welcome> {
    try {
      const found = this.#find(claim)
      if (!found) await this.#countFailure(address, stop)
      // The local copy may be older than the invitation.
      const invite = found ?? (await this.#deps.database.change(() => this.#find(claim)))
      if (!invite) throw await this.#noteUnknown(address)
      await this.#checkHere(invite, claim, address, stop)
      return await this.#useUnlessSlowed(invite, claim, address)
    } catch (error) {
      const refusal = this.#refusalOf(error)
      const isCounted = COUNTED.has(refusal.code)
      if (!isCounted) await this.#countFailure(address, stop)
      throw refusal
    }
  }

  /**
   * Refuses a device whose invitation has ended here, without a transaction. The failure counts before the
   * note, so that many connections of one address cannot fill the audit trail. Throws a JoinRefused.
   */
  async #checkHere(
    invite: Invite,
    claim: Claim,
    address: string,
    stop: AbortSignal,
  ): Promise<void> {
    try {
      this.#identify(invite, claim)
    } catch (error) {
      const refusal = this.#refusalOf(error)
      await this.#countFailure(address, stop)
      await this.#note({ ...changeBy(invite), targetId: invite.id }, address, refusal)
      throw refusal
    }
  }

  /** Counts a failed attempt. After many of them, waits and throws a JoinRefused. */
  async #countFailure(address: string, stop: AbortSignal): Promise<void> {
    const waitMs = this.#failures.tryCount(address)
    if (waitMs === 0) return
    await this.#deps.clock.sleep(waitMs, stop).catch(() => {})
    throw tooMany()
  }

  /** Only refusals count, so that many devices behind one address can join at the same time. */
  async #useUnlessSlowed(invite: Invite, claim: Claim, address: string): Promise<Welcome> {
    const key = `${invite.id} ${peerNetwork(address)}`
    if (this.#refusedUses.tryCount(key) > 0) throw tooMany()
    this.#refusedUses.charge(key, -1)
    try {
      return await this.#use(invite, claim, address)
    } catch (error) {
      if (this.#refusalOf(error).code !== 'not-ready') this.#refusedUses.charge(key, 1)
      throw error
    }
  }

  async #use(invite: Invite, claim: Claim, address: string): Promise<Welcome> {
    const { database, trail, log } = this.#deps
    const change = {
      ...changeBy(invite),
      client: address,
      targetId: invite.id,
    }
    let taken: AdmittedDevice | undefined
    const work = async () => {
      const take = () => {
        taken = undefined
        taken = this.#take(claim, address)
        return taken
      }
      return database.change(take, { concludes: invite.id })
    }
    const device = await trail.run(change, work, {
      about: () => ({}),
      codeOf: (error) => this.#refusalOf(error).code,
      concluded: () => [
        { targetName: taken?.name, changes: { name: [null, taken?.name] } },
        ...(taken?.changes ?? []),
      ],
    })
    log.info({ invite: invite.id, device: device.name, address }, 'device joined')
    return this.#welcome(invite, device)
  }

  /** The invitation of a claim with the right secret. */
  #find({ id, secret }: Claim): Invite | undefined {
    const invite = this.#deps.inviteStore.findByJoinId(id)
    const isRight = matchesHash(secret, invite?.secretHash ?? NO_HASH)
    return isRight ? invite : undefined
  }

  /** Uses the invitation for a device, as a part of an open change. Throws a JoinRefused or ServiceError. */
  #take(claim: Claim, address: string): AdmittedDevice {
    const { inviteClaims, ids, clock } = this.#deps
    const invite = this.#find(claim)
    if (!invite) throw unknown()
    const { claimHash, earlier, known } = this.#identify(invite, claim)
    const device = this.#admission.admit(invite, claim.hostname, known)
    const { name, credentialId } = device
    const { hostname } = claim
    if (earlier) inviteClaims.replace({ ...earlier, credentialId })
    else {
      const made = {
        id: ids.next('ic'),
        inviteId: invite.id,
        claimHash,
        at: clock.now(),
      }
      inviteClaims.insert({ ...made, name, hostname, address, credentialId })
    }
    return device
  }

  /** Finds what is known of a device. Throws a JoinRefused if the invitation does not let it in. */
  #identify(invite: Invite, claim: Claim) {
    const { inviteClaims, credentials } = this.#deps
    const claimHash = hashToken(claim.claim)
    const earlier = inviteClaims.find(invite.id, claimHash)
    this.#checkOpen(invite, earlier)
    if (!earlier) return { claimHash, earlier, known: this.#knownBy(invite, claim) }
    const found = credentials.get(earlier.credentialId)
    // The device may have stored the newer of its two authtokens.
    const credential = credentialOf(claim.earlier ?? '', found) ?? found
    if (credential) {
      const isPending = credential.successor?.invite.id === invite.id
      const { description, metadata, acl, granted } = isPending ? succeeded(credential) : credential
      const terms = { description, metadata, acl, granted }
      return { claimHash, earlier, known: { name: earlier.name, credential, terms } }
    }
    throw new JoinRefused(
      'used',
      'The authtoken of this device was revoked. Ask for an invitation.',
    )
  }

  /** Throws a JoinRefused unless the invitation lets in a device, or a device again. */
  #checkOpen(invite: Invite, earlier: InviteClaim | undefined): void {
    const now = this.#deps.clock.now()
    const state = this.stateOf(invite)
    if (state === 'withdrawn') {
      throw new JoinRefused('withdrawn', 'The invitation was withdrawn. Ask for a new invitation.')
    }
    const mayRepeat = earlier && now < Math.max(invite.expiresAt, earlier.at + RETRY_MS)
    if (state === 'open' || mayRepeat) return
    if (state === 'expired' || earlier) {
      const end = new Date(invite.expiresAt).toISOString()
      throw new JoinRefused('expired', `The invitation ended at ${end}. Ask for a new invitation.`)
    }
    const [last] = this.claimsOf(invite, 1)
    const by = last
      ? ` at ${new Date(last.at).toISOString()} by ${last.name} from ${last.address}. If that was not your device, delete its authtoken ${last.credentialId} at the gateway`
      : ''
    throw new JoinRefused('used', `The invitation was used${by}. Ask for a new invitation.`)
  }

  /** A device of this gateway that proves with its authtoken that it has joined before. */
  #knownBy(invite: Invite, { earlier }: Claim): KnownDevice | undefined {
    const found = this.#deps.credentials.get(idOfToken(earlier ?? '', 'cr') ?? '')
    const credential = credentialOf(earlier ?? '', found)
    if (!credential) return undefined
    const known = this.#admission.knownBy(credential, invite)
    const fixed = fixedNameOf(invite)
    return fixed === undefined || fixed === known?.name ? known : undefined
  }

  #welcome({ tags }: Invite, { name, names, authtoken }: AdmittedDevice): Welcome {
    return {
      v: JOIN_VERSION,
      name,
      authtoken: authtoken.reveal(),
      ...(names && {
        domain: names.domain,
        agent_domain: names.agentDomain,
        agent_url: this.#deps.urls.of('https', names.agentDomain),
      }),
      tags: [...tags],
      server_addrs: [...this.addresses()],
    }
  }

  async #noteUnknown(address: string): Promise<JoinRefused> {
    this.#deps.log.warn({ address }, 'unknown invitation, or wrong secret')
    const refusal = unknown()
    await this.#note(UNKNOWN_CHANGE, address, refusal)
    return refusal
  }

  /** Writes a refused attempt to the audit trail, if its address and all together have not had too many. */
  async #note(
    change: Omit<AuditedChange, 'client'>,
    address: string,
    { code }: JoinRefused,
  ): Promise<void> {
    const isNoted =
      this.#notedOfAddress.tryCount(peerNetwork(address)) === 0 && this.#noted.tryCount('') === 0
    if (isNoted) await this.#deps.trail.note({ ...change, client: address }, code)
  }

  #refusalOf(error: unknown): JoinRefused {
    if (error instanceof JoinRefused) return error
    if (error instanceof ServiceError) {
      return new JoinRefused('not-allowed', `${error.message} The invitation was not used.`)
    }
    if (!(error instanceof AppError)) {
      this.#deps.log.error({ err: error }, 'device could not join')
    }
    return new JoinRefused('not-ready', 'The gateway cannot save the device now. Try again later.')
  }
}

function tooMany(): JoinRefused {
  return new JoinRefused(
    'too-many-failures',
    'Too many attempts from this address failed. Try again in a minute.',
  )
}

function unknown(): JoinRefused {
  return new JoinRefused(
    'not-found',
    'This gateway has no such invitation. Ask for a new invitation.',
  )
}

const USE = 'invite.use'
const NOBODY: Actor = { kind: 'invite', id: null, name: 'unknown invitation' }
const UNKNOWN_CHANGE = { actor: NOBODY, action: USE } as const

function changeBy({ id, description }: Invite): Pick<AuditedChange, 'actor' | 'action'> {
  return {
    actor: { kind: 'invite', id, name: description || id },
    action: USE,
  }
}
