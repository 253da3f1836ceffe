import { AppError } from '../../base/app-error.ts'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import { hashToken, matchesHash } from '../../base/secret.ts'
import type { AuditTrail } from '../../store/audit-trail.ts'
import type { Database } from '../../store/database.ts'
import type { ApiKey, ApiKeyStore } from '../records/api-key-store.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { isInternal } from '../records/domain-name.ts'
import type { EndpointAddress, EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { ReservedAddrStore } from '../records/reserved-addr-store.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import { idOfToken, isResourceId } from '../records/resource-id.ts'
import { ServiceError } from '../records/service-error.ts'
import { Acl } from './acl.ts'
import { AuthtokenSuccessors, credentialOf, hasAuthtoken } from './authtoken-successors.ts'
import { NameOwners, type NameUse } from './name-rules.ts'

/**
 * Calls `listener` with the id of each credential that was changed or deleted, directly or with its owner.
 * Sessions must then end what the credential no longer allows.
 */
export function watchCredentials(
  { credentials, botUsers }: { credentials: CredentialStore; botUsers: BotUserStore },
  listener: (credentialId: string) => void,
): void {
  credentials.onChange(({ before }) => before && listener(before.id))
  botUsers.onChange(({ before, after }) => {
    if (!before || !after || before.active === after.active) return
    for (const id of credentials.idsOfOwner(after.id)) listener(id)
  })
}

/** Compared if the credential does not exist, so that the response time is the same. */
const NO_HASH = hashToken('')

/** Maximum number of compiled rule lists in the cache. */
const MAX_ACLS = 64

/** Accuracy of the time of last use, so that most uses of a key cause no write. */
const USE_STEP_MS = 60_000

export interface AuthorityDeps {
  readonly database: Pick<Database, 'change'>
  readonly trail: Pick<AuditTrail, 'run'>
  readonly credentials: CredentialStore
  readonly botUsers: BotUserStore
  readonly domains: ReservedDomainStore
  readonly reservedAddrs: ReservedAddrStore
  readonly apiKeys: ApiKeyStore
  /** Names and wildcards of the gateway itself, such as the targets of DNS records. */
  readonly ownNames?: readonly string[] | undefined
  readonly clock: Clock
}

/** Rights of a credential on a host. */
export interface BindRight {
  /** Owner of the future endpoint. */
  readonly ownerId: string | null
  /** Whether policies of other accounts can reach it. */
  readonly isShared: boolean
}

/** A name and the credential it was bound with. */
export interface BoundName extends EndpointAddress {
  readonly credentialId: string
  readonly ownerId: string | null
  /** Set if the gateway has chosen the name for that credential. */
  readonly drawn?: object | undefined
}

/**
 * Authenticates callers, and decides which names an agent may bind. Reads the current records for every
 * answer.
 */
export class Authority {
  readonly owners: NameOwners
  /** New authtokens of devices that have joined again. */
  readonly successors: AuthtokenSuccessors
  readonly #credentials: CredentialStore
  readonly #botUsers: BotUserStore
  readonly #domains: ReservedDomainStore
  readonly #reservedAddrs: ReservedAddrStore
  readonly #apiKeys: ApiKeyStore
  readonly #database: Pick<Database, 'change'>
  /** Keys with a pending update of their last use. */
  readonly #noting = new Set<string>()
  readonly #clock: Clock
  /** Compiled ACLs by their rules: a device binds a thousand names with the same rules. */
  readonly #acls = new BoundedCache((rules) => Acl.of(JSON.parse(rules)), MAX_ACLS)

  constructor(deps: AuthorityDeps) {
    this.#database = deps.database
    const { credentials, botUsers, domains, reservedAddrs, apiKeys, clock } = deps
    this.#reservedAddrs = reservedAddrs
    this.#clock = clock
    this.#apiKeys = apiKeys
    this.#credentials = credentials
    this.#botUsers = botUsers
    this.#domains = domains
    this.successors = new AuthtokenSuccessors(deps)
    this.owners = new NameOwners(domains, deps.ownNames)
  }

  /**
   * Returns the credential of an authtoken. For a new authtoken that was not used yet, it is the credential after
   * this use: `successors.settle` stores that. Throws ServiceError 4018, 105, 107 or 636.
   */
  authenticate(authtoken: string): Credential {
    if (authtoken === '') throw new ServiceError(4018, 'The agent sent no authtoken.')
    const id = idOfToken(authtoken, 'cr')
    if (id === undefined) {
      throw new ServiceError(
        105,
        'The authtoken is malformed. Check that it was copied completely.',
      )
    }
    const credential = credentialOf(authtoken, this.#credentials.get(id))
    if (!credential) {
      throw new ServiceError(
        107,
        'The authtoken is not valid here. It was deleted, or it belongs to another service.',
      )
    }
    this.#checkOwner(credential)
    return credential
  }

  /**
   * Returns the account of an authtoken, even if the authtoken is no longer usable. Null: the
   * gateway's owner, or unknown.
   */
  accountOf(authtoken: string): string | null {
    const credential = this.#credentials.get(idOfToken(authtoken, 'cr') ?? '')
    return credentialOf(authtoken, credential)?.ownerId ?? null
  }

  /**
   * Returns the API key of a token. Throws ServiceError 202, 203, 206, 208 or 636, and AppError
   * `unauthenticated` if it has expired.
   */
  authenticateApiKey(token: string): ApiKey {
    const id = idOfToken(token, 'ak')
    if (id === undefined) {
      throw isResourceId(token, 'ak')
        ? new ServiceError(208, 'This is the id of an API key, not the key itself.')
        : new ServiceError(202, 'The API key is malformed. Check that it was copied completely.')
    }
    const apiKey = this.#apiKeys.get(id)
    if (matchesHash(token, apiKey?.tokenHash ?? NO_HASH) && apiKey) {
      this.#checkKey(apiKey)
      return apiKey
    }
    const credential = this.#credentials.get(idOfToken(token, 'cr') ?? '')
    throw credentialOf(token, credential)
      ? new ServiceError(206, 'This is an authtoken of an agent, not an API key.')
      : new ServiceError(203, 'The API key is not valid here.')
  }

  /**
   * Returns a valid API key. Throws ServiceError 203 or 636, and AppError `unauthenticated` if it has
   * expired.
   */
  currentApiKey(keyId: string): ApiKey {
    const apiKey = this.#apiKeys.get(keyId)
    if (!apiKey) throw new ServiceError(203, 'The API key is not valid here.')
    this.#checkKey(apiKey)
    return apiKey
  }

  /**
   * Records that an API key was used, at most once a minute. Callers do not wait for the write, and a failed
   * write refuses no caller.
   */
  noteUse({ id, lastUsedAt }: ApiKey): void {
    const now = this.#clock.now()
    // The clock of a device may have been set back.
    if (lastUsedAt !== null && Math.abs(now - lastUsedAt) < USE_STEP_MS) return
    if (this.#noting.has(id)) return
    this.#noting.add(id)
    // Backups are for changes that people make: this change alone is not worth a backup.
    void this.#database
      .change(() => this.#apiKeys.noteUse(id, now), { withoutBackup: true })
      .catch(() => {})
      .finally(() => this.#noting.delete(id))
  }

  /** Checks that a credential is still valid. Throws ServiceError 300 or 636. */
  checkCredential(credentialId: string): void {
    this.#current(credentialId)
  }

  /** Whether the device has replaced the authtoken with this hash. False for a deleted credential. */
  isReplaced(credentialId: string, tokenHash: string): boolean {
    const credential = this.#credentials.get(credentialId)
    return credential !== undefined && !hasAuthtoken(credential, tokenHash)
  }

  /**
   * Checks that a credential may bind an endpoint on a valid `host`. The host must be in one of these places:
   *
   * - in a domain of its owner.
   * - in a domain of the gateway's owner, if that owner has set a rule for it.
   * - below `.internal`, where each account has its own names.
   *
   * A name that the gateway has chosen for the credential (`isDrawn`) needs no rule. Throws ServiceError 300,
   * 636, 316, 318, 319 or 321.
   */
  checkBind(
    credentialId: string,
    host: string,
    protocol: EndpointProtocol = 'https',
    isDrawn = false,
  ): BindRight {
    const credential = this.#current(credentialId)
    const { ownerId } = credential
    const acl = this.#aclOf(credential.acl)
    // Rules are checked first, so that a device learns nothing about names of others.
    const isInternalAddress = protocol === 'tcp' && isInternal(host)
    const isAddress = protocol === 'tcp' && !isInternalAddress
    const name = isInternalAddress ? host.replace(/:\d+$/, '') : host
    const isDrawnName = isDrawn && !isAddress && this.#drawsFrom(credential, host) !== undefined
    // Internal addresses have no listener, so a rule for the name covers its ports.
    const isAllowed = protocol === 'tcp' && acl.allowsAddress(host)
    if (!isDrawnName && !isAllowed && (isAddress || !acl.allows(name))) {
      throw new ServiceError(
        316,
        `The ACL rules of the authtoken ${credentialId} do not allow ${host}.`,
      )
    }
    if (isAddress) {
      const isGranted =
        credential.granted.length > 0 && this.#grantsOf(credential).allowsAddress(host)
      this.#checkAddress(host, { ownerId, isGranted })
      return { ownerId, isShared: false }
    }
    const isGranted = isDrawnName || this.#isGranted(credential, host)
    this.checkReserved(host, { ownerId, isGranted })
    return { ownerId, isShared: acl.shares(name) }
  }

  /** Whether a credential may still bind a host that it has bound before, for the same account. */
  mayBind({ credentialId, host, protocol, ownerId, drawn }: BoundName): boolean {
    try {
      const isDrawn = drawn !== undefined
      return this.checkBind(credentialId, host, protocol, isDrawn).ownerId === ownerId
    } catch (error) {
      if (error instanceof ServiceError) return false
      throw error
    }
  }

  /** Returns which TCP addresses the rules of a credential allow. Throws ServiceError 300 or 636. */
  addressesOf(credentialId: string): (address: string) => boolean {
    const acl = this.#aclOf(this.#current(credentialId).acl)
    return (address) => acl.allowsAddress(address)
  }

  /** The account that a public address is reserved for. Null: the gateway's owner, or not reserved. */
  accountFor({ protocol, host }: EndpointAddress): string | null {
    const reserved =
      protocol === 'tcp' ? this.#reservedAddrs.find(host) : this.owners.reservationOf(host)
    return reserved?.ownerId ?? null
  }

  /** Checks the address of an endpoint without a credential; see `checkReserved`. */
  checkUse({ protocol, host }: EndpointAddress, use: NameUse): void {
    if (protocol === 'tcp' && !isInternal(host)) this.#checkAddress(host, use)
    else this.checkReserved(host, use)
  }

  /**
   * Checks that a valid host is internal, or reserved for the account. A host of another account gives the
   * same answer as an unreserved host. Throws ServiceError 318, 319 or 321.
   */
  checkReserved(host: string, use: NameUse): void {
    const problem = this.owners.useProblem(host, use)
    if (problem === undefined) return
    switch (problem) {
      case 'not-reserved':
        throw new ServiceError(319, `The domain ${host} is not reserved ${forWhom(use)}.`)
      case 'wildcard-not-reserved':
        throw new ServiceError(318, `The wildcard domain ${host} is not reserved ${forWhom(use)}.`)
      case 'wildcard-above': {
        const above = this.owners.reservationOf(host)?.domain
        throw new ServiceError(
          321,
          `The wildcard ${host} must be reserved separately. ${above} does not cover it.`,
        )
      }
      case 'gateway-name':
        throw new ServiceError(
          319,
          `The name ${host} belongs to the gateway itself. Use another name, or ask the gateway's owner to reserve exactly this one for you.`,
        )
    }
  }

  /** Throws ServiceError 319 if a TCP address is reserved for another account. */
  #checkAddress(address: string, { ownerId, isGranted }: NameUse): void {
    const reserved = this.#reservedAddrs.find(address)
    if (!reserved || reserved.ownerId === ownerId) return
    if (isGranted && reserved.ownerId === null) return
    throw new ServiceError(319, `The address ${address} is reserved for another account.`)
  }

  /** Whether the gateway's owner has granted a credential this name of the owner's domains. */
  #isGranted(credential: Credential, host: string): boolean {
    if (credential.granted.length === 0) return false
    const hosts = this.#grantsOf(credential).hostsOfRulesFor(host)
    return hosts.some((ruleHost) => this.owners.isGrant(ruleHost, host))
  }

  /**
   * The wildcard that may supply an automatic host for a credential. It belongs to the credential's owner, or
   * to the gateway's owner with a grant for the credential.
   */
  #drawsFrom(credential: Credential, host: string): string | undefined {
    const covering = this.owners.reservationOf(host)
    if (!covering?.domain.startsWith('*.')) return undefined
    const { domain, ownerId } = covering
    if (ownerId === credential.ownerId) return domain
    if (ownerId !== null) return undefined
    const grants = this.#grantsOf(credential)
    const isGiven =
      grants.hasAll || grants.hosts().some((it) => this.owners.reservationOf(it)?.domain === domain)
    return credential.granted.length > 0 && isGiven ? domain : undefined
  }

  /** Rules that the gateway's owner has set. */
  #grantsOf({ acl, granted }: Credential): Acl {
    return this.#aclOf(granted.filter((rule) => acl.includes(rule)))
  }

  /**
   * Returns the wildcard for automatic names of a credential. It is a wildcard that its rules allow, else the
   * wildcard above a name in its rules. Throws 300, 636, 15013.
   */
  wildcardFor(credentialId: string): string {
    const credential = this.#current(credentialId)
    const acl = this.#aclOf(credential.acl)
    const candidates = [...acl.hosts(), ...this.#domains.all().map(({ domain }) => domain)]
    const allowed = candidates.find(
      (host) => host.startsWith('*.') && acl.allows(host) && this.#drawsFrom(credential, host),
    )
    const wildcard =
      allowed ?? acl.hosts().flatMap((host) => this.#drawsFrom(credential, host) ?? [])[0]
    if (wildcard) return wildcard
    throw new ServiceError(
      15013,
      'No random name can be given: the authtoken may use no wildcard domain. Give the tunnel a domain, or reserve a wildcard for the account, such as *.site.example.com.',
    )
  }

  #aclOf(rules: readonly string[]): Acl {
    return this.#acls.get(JSON.stringify(rules))
  }

  #current(credentialId: string): Credential {
    const credential = this.#credentials.get(credentialId)
    if (!credential) throw new ServiceError(300, `The authtoken ${credentialId} has been revoked.`)
    this.#checkOwner(credential)
    return credential
  }

  #checkKey(apiKey: ApiKey): void {
    this.#checkOwner(apiKey)
    const { name, expiresAt } = apiKey
    if (expiresAt === null || this.#clock.now() < expiresAt) return
    throw new AppError(
      'unauthenticated',
      `The API key "${name}" expired on ${new Date(expiresAt).toISOString()}. Use another key.`,
      { serviceCode: 'ERR_GATEWAY_KEY_EXPIRED' },
    )
  }

  #checkOwner({ ownerId }: Pick<Credential, 'ownerId'>): void {
    if (ownerId === null || this.#botUsers.get(ownerId)?.active) return
    throw new ServiceError(636, `The owner ${ownerId} is inactive.`)
  }
}

const RESERVE = 'Reserve it in the console of the gateway, or with POST /reserved_domains'

function forWhom({ ownerId, isGranted }: NameUse): string {
  if (ownerId === null) return `for the gateway's owner. ${RESERVE}`
  return isGranted
    ? `for ${ownerId} or the gateway's owner. ${RESERVE}`
    : `for ${ownerId}. Reserve it for this owner, or add an ACL rule to the authtoken`
}
