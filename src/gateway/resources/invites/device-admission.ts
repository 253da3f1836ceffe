import type { AuditedChange } from '../../../base/audit.ts'
import type { Clock } from '../../../base/clock.ts'
import type { Secret } from '../../../base/secret.ts'
import type { JoinRefusal } from '../../../join/join-messages.ts'
import { nameInRule } from '../../access/acl.ts'
import type { Authority } from '../../access/authority.ts'
import { replacedBy } from '../../access/authtoken-successors.ts'
import type { CredentialIssuer } from '../../access/credential-issuer.ts'
import {
  aclRules,
  type DeviceNames,
  deviceNames,
  filled,
  isDeviceName,
  markBegin,
  markOf,
  NAME_PLACEHOLDER,
} from '../../access/device-names.ts'
import type { NameClaims } from '../../access/name-claims.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { AuthtokenTerms, Credential, CredentialStore } from '../../records/credential-store.ts'
import { isBelow } from '../../records/domain-name.ts'
import type { ReservedDomain, ReservedDomainStore } from '../../records/reserved-domain-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { ServiceError } from '../../records/service-error.ts'
import { MAX_DEVICES, newDevice } from '../devices/device-journal.ts'
import type { Device, DeviceStore } from '../devices/device-store.ts'
import type { Devices } from '../devices/devices.ts'
import type { DomainRegistrar } from '../reserved-names/domain-registrar.ts'
import type { Invite } from './invite-store.ts'

/** A device that is not let in. The message is for people at the device, and contains no secret. */
export class JoinRefused extends Error {
  override readonly name = 'JoinRefused'
  readonly code: JoinRefusal

  constructor(code: JoinRefusal, message: string) {
    super(message)
    this.code = code
  }
}

const MAX_NAME = 63
/** Devices with one host name that are numbered. */
const MAX_NUMBER = 99

/** Makes a device name of a host name: its first label, in lower case. Empty if nothing is left. */
export function nameOfHost(hostname: string): string {
  const [label = ''] = hostname.toLowerCase().split('.')
  return trimmed(label.replace(/[^a-z0-9]+/g, '-'))
}

/** Names for a device, the best first: a template with the host name, then with numbers. */
function* namesFor(template: string, hostname: string): Generator<string> {
  const first = trimmed(filled(template, nameOfHost(hostname)))
  if (nameOfHost(hostname) === '' || !isDeviceName(first)) return
  yield first
  for (let n = 2; n <= MAX_NUMBER; n += 1) yield `${trimmed(first, MAX_NAME - 3)}-${n}`
}

function trimmed(text: string, most = MAX_NAME): string {
  return text.slice(0, most).replace(/^-+|-+$/g, '')
}

/** The name that all devices of the invitation get; undefined if it depends on the device. */
export function fixedNameOf({ name }: Pick<Invite, 'name'>): string | undefined {
  return name === null || name.includes(NAME_PLACEHOLDER) ? undefined : name
}

/** Names below which a device with a name gets all its names; without names that all devices get. */
function placesOf({ domain, acl }: Pick<Invite, 'domain' | 'acl'>, name: string): string[] {
  const names = domain === null ? undefined : deviceNames(name, { domain })
  const own = names && 'domain' in names ? names : undefined
  const rules = acl.filter((rule) => rule.toLowerCase().includes(NAME_PLACEHOLDER))
  const hosts = rules.map((rule) => nameInRule(filled(rule, name))?.host ?? '')
  if (own) hosts.unshift(own.hasOwnDomain ? own.domain : own.agentDomain)
  return hosts.map((host) => host.replace(/^\*\./, ''))
}

/** Says why an invitation does not get its name, and which deletion frees the name. */
function takenText({ ownerId }: Invite, name: string, holder: NameHolder): string {
  const { account, device, authtokens } = holder
  const [authtoken] = authtokens
  const kind = device ? 'device' : 'bot user'
  const also = authtoken === undefined ? '' : ' and has an authtoken'
  const path = device && authtoken !== undefined ? `/credentials/${authtoken}` : rest()
  const command =
    path.startsWith('/credentials/') && ownerId === null
      ? `device-agent gateway invite --name ${name} --replace. Then join with the new line`
      : `DELETE ${path} at the management API, or the same in the console. Then join again with this invitation`
  return `A ${kind} named ${name} exists at this gateway${also}. The owner of the gateway can give its name to this device: ${command}. Or create an invitation with another name. The invitation was not used.`

  function rest(): string {
    return device && ownerId !== null ? `/devices/${device.id}` : `/bot_users/${account}`
  }
}

/**
 * The device of a holder, if its authtoken was deleted. A host name never leads to such a device, and an author that is
 * limited to an account never to a device of another account.
 */
function revokedOf(
  { ownerId, isGranted }: NamedInvite,
  { device, authtokens }: NameHolder,
): Device | undefined {
  if (ownerId === null && !isGranted) return undefined
  const hadAuthtoken = device?.isProvisioned && device.credentialId !== null
  return hadAuthtoken && authtokens.length === 0 ? device : undefined
}

export interface DeviceAdmissionDeps {
  readonly domains: ReservedDomainStore
  readonly botUsers: BotUserStore
  readonly credentials: CredentialStore
  readonly deviceStore: DeviceStore
  readonly authority: Pick<Authority, 'owners'>
  readonly registry: Pick<EndpointRegistry, 'all' | 'allDisconnected'>
  readonly names: Pick<NameClaims, 'elsewhere'>
  readonly devices: Pick<Devices, 'addWithin'>
  readonly registrar: Pick<DomainRegistrar, 'reserveWithin'>
  readonly issuer: Pick<
    CredentialIssuer,
    'createBotUserWithin' | 'createCredentialWithin' | 'renewCredentialWithin'
  >
  readonly ids: IdSource
  readonly clock: Clock
}

/** The part of an invitation that decides which name it gives, and for which account. */
type NamedInvite = Pick<Invite, 'name' | 'ownerId' | 'isGranted'>

/** A device that joins again: its name stays, and it gets another authtoken. */
export interface KnownDevice {
  readonly name: string
  /** With the authtoken that the device has stored, as far as the device has proved that. */
  readonly credential: Credential
  /** Kept when the device repeats a join. The owner may have withdrawn rules since the first time. */
  readonly terms?: AuthtokenTerms
}

/** Account, device and authtokens that have the name of an invitation. */
export interface NameHolder {
  readonly account: string
  /** Undefined: the bot user is not one of a device. */
  readonly device: Device | undefined
  readonly authtokens: readonly string[]
}

/** A device that may connect from now on. */
export interface AdmittedDevice {
  readonly name: string
  /** Undefined if the invitation has no domain. */
  readonly names: DeviceNames | undefined
  readonly credentialId: string
  readonly authtoken: Secret
  /** Further changes, for the audit trail. */
  readonly changes: readonly Partial<AuditedChange>[]
}

/** Lets devices in: reserves their domains, and makes bot users, authtokens and devices. */
export class DeviceAdmission {
  readonly #deps: DeviceAdmissionDeps

  constructor(deps: DeviceAdmissionDeps) {
    this.#deps = deps
  }

  /**
   * Makes everything for a device, as a part of an open change. `known`: the device joins again. Throws a
   * JoinRefused, or a ServiceError. A device without an authtoken gets one if the invitation fixes its name.
   */
  admit(invite: Invite, hostname: string, known: KnownDevice | undefined): AdmittedDevice {
    const { issuer, credentials } = this.#deps
    const name = known?.name ?? this.#chooseName(invite, hostname)
    const revoked = known ? undefined : this.#findRevoked(invite)
    const names = this.#namesOf(invite, name)
    const changes: Partial<AuditedChange>[] = []
    if (names) this.#reserve(invite, names, changes)
    const account = known?.credential.ownerId ?? invite.ownerId ?? revoked?.ownerId
    const ownerId = account ?? this.#makeOwner(name, changes)
    const rules = invite.acl.map((rule) => filled(rule, name))
    const acl = [...new Set([...(names ? aclRules(names) : []), ...rules])]
    const request = {
      description: `device ${name}`,
      metadata: markOf({ name, domain: names?.domain ?? '' }),
      acl,
    }
    const author = { isGranting: invite.isGranted }
    const terms = known?.terms ?? { ...request, granted: author.isGranting ? acl : [] }
    const stored = known && credentials.get(known.credential.id)
    if (stored && stored.tokenHash !== known.credential.tokenHash) changes.push(replacedBy(stored))
    const by = { id: invite.id, name: invite.description || invite.id }
    const { credential, authtoken } = known
      ? issuer.renewCredentialWithin(known.credential, { ...terms, invite: by })
      : issuer.createCredentialWithin({ ...request, ownerId }, author)
    changes.push({
      action: known ? 'credential.renew' : 'credential.create',
      targetId: credential.id,
      targetName: credential.description,
      changes: known
        ? { authtoken: 'changed', acl: [known.credential.acl, terms.acl] }
        : { acl: [null, acl], owner_id: [null, ownerId] },
    })
    // Another machine may get the name. The next sign-in tells its device id.
    const row = known
      ? this.#deps.deviceStore.findLastWith(known.credential.id)
      : revoked && { ...revoked, deviceId: null }
    this.#keepDevice(invite, { name, credential, row })
    return { name, names, credentialId: credential.id, authtoken, changes }
  }

  /**
   * The device of an authtoken, if it was made for a device of this invitation's account. `name`: its name, if
   * that is known.
   */
  knownBy(credential: Credential, { ownerId }: Pick<Invite, 'ownerId'>): KnownDevice | undefined {
    const account = credential.ownerId
    if (ownerId !== null && account !== ownerId) return undefined
    const row = this.#deps.deviceStore.findLastWith(credential.id)
    const name = ownerId === null ? this.#deps.botUsers.get(account ?? '')?.name : row?.name
    const isMade = name !== undefined && credential.metadata.startsWith(markBegin(name))
    return isMade ? { name, credential } : undefined
  }

  /**
   * Returns the holder of the name that the invitation fixes. Only a device with one of its authtokens can then
   * join. Undefined: the name is free, or its device has no authtoken left.
   */
  nameHolder(invite: NamedInvite): NameHolder | undefined {
    const fixed = fixedNameOf(invite)
    const holder = fixed === undefined ? undefined : this.#holderOf(invite, fixed)
    return holder && revokedOf(invite, holder) ? undefined : holder
  }

  /** Throws a JoinRefused if the account has the name, or the host name gives none. */
  #chooseName(invite: Invite, hostname: string): string {
    const fixed = fixedNameOf(invite)
    if (fixed !== undefined) {
      const holder = this.nameHolder(invite)
      if (!holder) return fixed
      throw new JoinRefused('name-refused', takenText(invite, fixed, holder))
    }
    let first: string | undefined
    let last = ''
    for (const name of namesFor(invite.name ?? NAME_PLACEHOLDER, hostname)) {
      first ??= name
      last = name
      if (!this.#isTaken(invite, name) && !this.#isGiven(invite, name)) return name
    }
    throw new JoinRefused(
      'name-refused',
      first === undefined
        ? 'The host name of this device contains no letters or digits for a name. Change it, or create an invitation with a name. The invitation was not used.'
        : `All names from ${first} to ${last} are taken. Change the host name, or create an invitation with a name. The invitation was not used.`,
    )
  }

  /** The device with the name that the invitation fixes, if its authtoken was deleted. */
  #findRevoked(invite: NamedInvite): Device | undefined {
    const fixed = fixedNameOf(invite)
    const holder = fixed === undefined ? undefined : this.#holderOf(invite, fixed)
    return holder && revokedOf(invite, holder)
  }

  /** Undefined: the name is free. */
  #holderOf({ ownerId }: NamedInvite, name: string): NameHolder | undefined {
    const { botUsers, credentials, deviceStore } = this.#deps
    const account = ownerId ?? botUsers.findByName(name)?.id
    if (account === undefined) return undefined
    const device = deviceStore.findByName(account, name)
    if (ownerId !== null && !device) return undefined
    const isOfDevice = (id: string) =>
      ownerId === null ||
      id === device?.credentialId ||
      credentials.get(id)?.metadata.startsWith(markBegin(name))
    return { account, device, authtokens: credentials.idsOfOwner(account).filter(isOfDevice) }
  }

  #isTaken({ ownerId }: Invite, name: string): boolean {
    const { botUsers, deviceStore } = this.#deps
    return ownerId === null
      ? botUsers.findByName(name) !== undefined
      : deviceStore.findByName(ownerId, name) !== undefined
  }

  /**
   * Whether a name would give the device a name of the gateway itself, one with a reservation of its own, or
   * one of another endpoint. Only the author of an invitation may choose such a name, not the device.
   */
  #isGiven(invite: Invite, name: string): boolean {
    const { authority, registry, names } = this.#deps
    const others = placesOf(invite, name === 'a' ? 'b' : 'a')
    const places = placesOf(invite, name)
    // A domain stays reserved when its device is deleted.
    const isLeft = ({ metadata, domain }: ReservedDomain) => metadata === markOf({ name, domain })
    if (places.some((it, n) => authority.owners.isGiven(it, others[n] ?? '', isLeft))) return true
    const isAtPlace = ({ host }: { readonly host: string }) =>
      places.some((it) => host === it || isBelow(host, `*.${it}`))
    const known = [registry.all(), registry.allDisconnected(), names.elsewhere()]
    return known.some((all) => [...all].some(isAtPlace))
  }

  #namesOf({ domain }: Invite, name: string): DeviceNames | undefined {
    if (domain === null) return undefined
    const names = deviceNames(name, { domain })
    if (!('problem' in names)) return names
    throw new JoinRefused('not-allowed', names.problem)
  }

  #reserve(
    { ownerId, isGranted }: Invite,
    names: DeviceNames,
    changes: Partial<AuditedChange>[],
  ): void {
    const { domains, registrar } = this.#deps
    const { domain, hasOwnDomain } = names
    const found = domains.find(domain)
    if (found && found.ownerId !== ownerId) {
      throw new ServiceError(413, `The domain ${domain} is already reserved.`)
    }
    if (found) return
    const metadata = hasOwnDomain ? markOf(names) : ''
    const wanted = { domain, ownerId, metadata }
    const { id } = registrar.reserveWithin(wanted, { isGranting: isGranted })
    const made = { domain: [null, domain], owner_id: [null, ownerId] } as const
    changes.push({
      action: 'reserved_domain.create',
      targetId: id,
      targetName: domain,
      changes: made,
    })
  }

  #makeOwner(name: string, changes: Partial<AuditedChange>[]): string {
    const { id } = this.#deps.issuer.createBotUserWithin({ name })
    const made = { name: [null, name] } as const
    changes.push({ action: 'bot_user.create', targetId: id, targetName: name, changes: made })
    return id
  }

  #keepDevice(
    { tags }: Invite,
    { name, credential, row }: KnownDevice & { readonly row: Device | undefined },
  ): void {
    const { devices, deviceStore, ids, clock } = this.#deps
    const { id: credentialId, ownerId } = credential
    if (row) {
      deviceStore.replace({ ...row, credentialId, tags: tags.length > 0 ? tags : row.tags })
      return
    }
    const made = { id: ids.next('dv'), ownerId, credentialId, createdAt: clock.now() }
    if (devices.addWithin(newDevice({ ...made, name, tags, isProvisioned: true }))) return
    throw new ServiceError(
      832,
      `The account is at its limit of ${MAX_DEVICES} devices. Delete old devices.`,
    )
  }
}
