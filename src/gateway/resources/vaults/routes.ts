import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { SecretName } from '../../../policy/exchange/policy-secrets.ts'
import { SECRET_NAME, SECRET_NAME_FORM } from '../../../policy/vocabulary/secrets.ts'
import type { Database } from '../../../store/database.ts'
import type { SecretAccess } from '../../access/endpoint-secrets.ts'
import type { SecretSeal } from '../../access/secret-seal.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import type { AccountQuotas } from '../../records/account-quotas.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { CredentialStore } from '../../records/credential-store.ts'
import type { ReservedDomainStore } from '../../records/reserved-domain-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'
import type { Vault, VaultSecret, VaultSecretStore, VaultStore } from '../../records/vault-store.ts'
import { type Caller, ownerFor, sees } from '../common/caller.ts'
import { elsewhere } from '../common/elsewhere.ts'
import {
  itemFields,
  Reference,
  requireChange,
  Timestamp,
  texts,
  timestamp,
} from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import type { MissingNode } from '../common/resource-lists.ts'

const TEXT_CODES = [215, 215] as const
/** Bytes of a value in UTF-8. Masks of shorter values would make logs unreadable and show the values. */
const MIN_VALUE = 4
const MAX_VALUE = 4_096
const MAX_ALLOW = 100
/** Endpoints that a refusal names. */
const MAX_SHOWN = 5
/** Endpoints in the view of a secret. */
const MAX_USERS = 100

const VaultCreate = z.strictObject({
  ...texts,
  name: z.string(),
  owner_id: z.string().nullable().optional(),
})
const VaultUpdate = z.strictObject({ ...texts, name: z.string().optional() })
const keptFields = {
  ...itemFields,
  updated_at: Timestamp,
  owner_id: z.string().nullable(),
  name: z.string(),
  description: z.string(),
  metadata: z.string(),
}
const VaultView = z.strictObject({
  ...keptFields,
  created_by: z.string().describe('id of the API key'),
  last_updated_by: z.string().describe('id of the API key'),
})

export interface VaultsDeps {
  readonly database: Pick<Database, 'change'>
  readonly vaults: VaultStore
  readonly vaultSecrets: VaultSecretStore
  readonly botUsers: BotUserStore
  readonly quotas: AccountQuotas
  readonly ids: IdSource
  readonly clock: Clock
}

/** Vaults, which have the secrets of an account. */
export function vaults(deps: VaultSecretsDeps): Resource<Vault> {
  const { database, vaults: store, vaultSecrets, botUsers, quotas, ids, clock } = deps
  const usage = secretUsage(deps)

  function checkVault(vault: Vault): void {
    checkName(vault.name, { what: 'vault', code: 23000, emptyCode: 23001 })
    checkTexts(vault, TEXT_CODES)
    const other = store.find(vault.ownerId, vault.name)
    if (other && other.id !== vault.id) {
      throw new ServiceError(23004, `The account already has a vault ${vault.name}.`)
    }
  }

  return {
    path: 'vaults',
    noun: 'Vault',
    about: 'Vaults with the secrets of policies.',
    collection: 'vaults',
    prefix: 'vault',
    schema: VaultView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: viewVault,
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ VaultCreate }, async (body, { baseUrl, caller }) => {
      const { description = '', metadata = '', name } = body
      const ownerId = ownerFor(caller, body.owner_id)
      const id = ids.next('vault')
      const vault = { id, ownerId, name, description, metadata, ...madeBy(caller, clock.now()) }
      const keep = () => {
        botUsers.checkOwner(ownerId)
        checkVault(vault)
        quotas.check(ownerId, 'vaults')
        store.insert(vault)
      }
      await database.change(keep, { concludes: id })
      return viewVault(vault, baseUrl)
    }),
    update: withBody({ VaultUpdate }, async (change, { item: { id, name }, caller }) => {
      requireChange(change, 215, 'name, description or metadata')
      if (change.name !== undefined && change.name !== name) {
        for (const secret of vaultSecrets.ofVault(id)) {
          refuseUsed(await usage.of(secret), {
            failed: 'The vault cannot be renamed',
            fix: 'Create a vault with the new name and the secrets, change the policies, then delete this one.',
          })
        }
      }
      const keep = () => {
        const vault = present(store.get(id))
        const updated = { ...vault, ...withoutMissing(change), ...changedBy(caller, clock.now()) }
        checkVault(updated)
        store.replace(updated)
        return updated
      }
      return database.change(keep, { concludes: id })
    }),
    remove: async ({ id }) => {
      const keep = () => {
        if (vaultSecrets.ofVault(id).length > 0) {
          throw new ServiceError(23003, 'The vault has secrets. Delete them first.')
        }
        store.delete(id)
      }
      await database.change(keep, { concludes: id, mayUseReserve: true })
    },
  }
}

function viewVault(
  { createdAt, createdBy, updatedAt, updatedBy, ownerId, ...vault }: Vault,
  baseUrl: string,
): z.infer<typeof VaultView> {
  return {
    ...vault,
    uri: `${baseUrl}/vaults/${vault.id}`,
    created_at: timestamp(createdAt),
    updated_at: timestamp(updatedAt),
    owner_id: ownerId,
    created_by: createdBy,
    last_updated_by: updatedBy,
  }
}

const Allow = z
  .array(z.string().max(64))
  .max(MAX_ALLOW)
  .describe('ids of authtokens, bot users and domains whose policies may use it, too')

const SecretCreate = z.strictObject({
  ...texts,
  name: z.string(),
  value: z.string().describe('4 to 4,096 bytes; no answer contains it'),
  vault_id: z.string().optional(),
  vault_name: z.string().optional().describe('instead of vault_id, in the account of the key'),
  allow: Allow.optional(),
})
const SecretUpdate = z.strictObject({
  ...texts,
  name: z.string().optional(),
  value: z.string().optional(),
  allow: Allow.optional(),
  add_allow: Allow.describe('ids to add to allow').optional(),
})
const SecretView = z.strictObject({
  ...keptFields,
  created_by: Reference,
  last_updated_by: Reference,
  vault: Reference,
  vault_name: z.string(),
  allow: Allow,
  value_set_at: Timestamp,
  used_by: z
    .array(Reference.extend({ url: z.string() }))
    .describe(`online endpoints whose policies name it, at most ${MAX_USERS}`),
  used_by_count: z
    .int()
    .describe('number of all these endpoints; for several gateways, there may be more'),
})
type SecretView = z.infer<typeof SecretView>

/** The endpoints that name a secret. Gateways in `missing` did not answer. */
interface Usage extends Pick<SecretView, 'used_by' | 'used_by_count'> {
  readonly missing: readonly MissingNode[]
}

export interface VaultSecretsDeps extends VaultsDeps {
  readonly credentials: CredentialStore
  readonly domains: ReservedDomainStore
  readonly registry: EndpointRegistry
  readonly others: OtherGateways
  readonly seal: SecretSeal
  readonly secretAccess: SecretAccess
}

/** Secrets of policies. Values come in and never go out. */
export function vaultSecrets(deps: VaultSecretsDeps): Resource<VaultSecret> {
  const { vaultSecrets: store } = deps
  const usage = secretUsage(deps)
  const { view } = usage
  const changes = new SecretChanges(deps, usage.of)
  return {
    path: 'vault_secrets',
    noun: 'Secret',
    about: 'Secrets that policies read with secrets.get().',
    collection: 'secrets',
    prefix: 'secret',
    schema: SecretView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ({ ownerId }) => ownerId,
    elsewhere: usage.atOthers,
    isEverywhere: () => true,
    combine: (views) => combineSecrets(views as [SecretView, ...SecretView[]]),
    create: withBody({ SecretCreate }, async (body, { baseUrl, caller }) =>
      view(await changes.create(body, caller), baseUrl),
    ),
    update: withBody({ SecretUpdate }, (body, { item, caller }) =>
      changes.update(item, body, caller),
    ),
    remove: (secret) => changes.removeUnused(secret),
    removal: 'Delete, unless a policy uses it',
    removals: {
      force: {
        summary: 'Delete, even if policies use it',
        run: (secret) => changes.remove(secret),
      },
    },
  }
}

/** Views of secrets, and the endpoints that use them, here and at the other gateways. */
function secretUsage(deps: VaultSecretsDeps) {
  const users = new SecretUsers(deps)
  const atOthers = elsewhere(deps.others, 'vault_secrets')
  const view = (secret: VaultSecret, baseUrl: string) => {
    const vault = deps.vaults.get(secret.vaultId)
    return viewSecret(secret, baseUrl, { vault, users: users.of(secret) })
  }
  const of = async (secret: VaultSecret): Promise<Usage> => {
    const asked = { viewer: { ownerId: null, isOwnerOnly: false }, baseUrl: '' }
    const { found, missing } = await atOthers.find(secret.id, asked)
    const views = found.map((it) => it.view as SecretView)
    return { ...combineSecrets([view(secret, ''), ...views]), missing }
  }
  return { atOthers, view, of }
}

/** Throws ServiceError 24010 for a secret that is used, and 840 if another gateway may have users of it. */
function refuseUsed(
  { used_by: endpoints, used_by_count: count, missing }: Usage,
  { failed, fix }: { readonly failed: string; readonly fix: string },
): void {
  if (count > 0) {
    const urls = unique(endpoints.map(({ url }) => url))
    const shown = urls.slice(0, MAX_SHOWN).join(', ')
    const more = count > MAX_SHOWN ? ` and ${count - MAX_SHOWN} more` : ''
    throw new ServiceError(24010, `${failed}, because policies use it: ${shown}${more}. ${fix}`)
  }
  if (missing.length > 0) {
    throw new ServiceError(
      840,
      `${failed}, because ${missing.length} of the other gateways did not say whether policies use it. Try again. ${fix}`,
    )
  }
}

/** Creates, changes and deletes secrets. Every refusal is a ServiceError. */
class SecretChanges {
  readonly #deps: VaultSecretsDeps
  readonly #usageOf: (secret: VaultSecret) => Promise<Usage>

  constructor(deps: VaultSecretsDeps, usageOf: (secret: VaultSecret) => Promise<Usage>) {
    this.#deps = deps
    this.#usageOf = usageOf
  }

  create(body: z.infer<typeof SecretCreate>, caller: Caller): Promise<VaultSecret> {
    const { database, vaultSecrets: store, quotas, ids, clock } = this.#deps
    const { description = '', metadata = '', name, value, allow = [] } = body
    checkValue(value)
    const id = ids.next('secret')
    const now = clock.now()
    const keep = () => {
      const { id: vaultId, ownerId } = vaultFor(body, caller, this.#deps)
      checkAllow(allow, [], { ownerId, caller }, this.#deps)
      const texts = { name, description, metadata }
      const secret = { id, ownerId, vaultId, ...texts, allow: unique(allow), valueAt: now }
      const unsealed = { ...secret, ...madeBy(caller, now) }
      this.#check(unsealed)
      quotas.check(ownerId, 'secrets')
      const kept = this.#sealed(value, unsealed)
      store.insert(kept)
      return kept
    }
    return database.change(keep, { concludes: id })
  }

  async update(
    { id, name }: VaultSecret,
    body: z.infer<typeof SecretUpdate>,
    caller: Caller,
  ): Promise<VaultSecret> {
    const { database, vaultSecrets: store, clock } = this.#deps
    requireChange(body, 215, 'name, value, description, metadata, allow or add_allow')
    const { value, add_allow: added = [], ...change } = body
    if (value !== undefined) checkValue(value)
    if (change.name !== undefined && change.name !== name) {
      refuseUsed(await this.#usageOf(present(store.get(id))), {
        failed: 'The secret cannot be renamed',
        fix: 'Create a secret with the new name, change the policies, then delete this one.',
      })
    }
    const keep = () => {
      const secret = present(store.get(id))
      const allow = unique([...(change.allow ?? secret.allow), ...added])
      checkAllow(allow, secret.allow, { ownerId: secret.ownerId, caller }, this.#deps)
      const now = clock.now()
      const updated = {
        ...{ ...secret, ...withoutMissing(change), allow },
        ...changedBy(caller, now),
        ...(value !== undefined && { valueAt: now }),
      }
      this.#check(updated)
      const isMoved = updated.name !== secret.name
      const content = value ?? (isMoved ? opened(secret, this.#deps.seal) : undefined)
      const kept = content === undefined ? updated : this.#sealed(content, updated)
      store.replace(kept)
      return kept
    }
    return database.change(keep, { concludes: id })
  }

  async removeUnused(secret: VaultSecret): Promise<void> {
    const names = `${this.#deps.vaults.get(secret.vaultId)?.name ?? ''} ${secret.name}`
    refuseUsed(await this.#usageOf(secret), {
      failed: 'The secret cannot be deleted',
      fix: `Change the policies first, or delete it anyway: device-agent gateway secrets remove ${names} --force, or DELETE /vault_secrets/${secret.id}/force.`,
    })
    await this.remove(secret)
  }

  async remove({ id }: VaultSecret): Promise<void> {
    const { database, vaultSecrets: store } = this.#deps
    await database.change(() => store.delete(id), { concludes: id, mayUseReserve: true })
  }

  #check(secret: Omit<VaultSecret, 'sealed'>): void {
    checkName(secret.name, { what: 'secret', code: 24000, emptyCode: 24000 })
    checkTexts(secret, TEXT_CODES)
    const other = this.#deps.vaultSecrets.find(secret.vaultId, secret.name)
    if (other && other.id !== secret.id) {
      throw new ServiceError(24005, `The vault already has a secret ${secret.name}.`)
    }
  }

  #sealed(value: string, secret: Omit<VaultSecret, 'sealed'>): VaultSecret {
    return { ...secret, sealed: this.#deps.seal.seal(value, secret) }
  }
}

/** Throws ServiceError 24011: the name is bound to the value, so that a new name needs the old value. */
function opened(secret: VaultSecret, seal: SecretSeal): string {
  const value = seal.open(secret.sealed, secret)
  if (value !== undefined) return value
  throw new ServiceError(24011, 'The value cannot be opened. Set it together with the new name.')
}

function vaultFor(
  { vault_id: id, vault_name: name }: z.infer<typeof SecretCreate>,
  caller: Caller,
  { vaults }: Pick<VaultsDeps, 'vaults'>,
): Vault {
  if ((id === undefined) === (name === undefined)) {
    throw new ServiceError(24008, 'Set either vault_id or vault_name.')
  }
  const ownerId = caller.isOwnerOnly ? caller.ownerId : null
  const vault = id === undefined ? vaults.find(ownerId, name ?? '') : vaults.get(id)
  if (vault && sees(caller, vault.ownerId)) return vault
  throw id === undefined
    ? new ServiceError(24009, `There is no vault ${name?.slice(0, 128)}.`)
    : new ServiceError(24006, `There is no vault with the id ${id.slice(0, 64)}.`)
}

/**
 * Throws ServiceError 215 for too many ids, and for an id that does not exist, or belongs to another account.
 * Secrets of the gateway's owner may be for all accounts. Entries that were accepted before may stay.
 */
function checkAllow(
  allow: readonly string[],
  before: readonly string[],
  { ownerId, caller }: { readonly ownerId: string | null; readonly caller: Caller },
  { credentials, botUsers, domains }: VaultSecretsDeps,
): void {
  if (allow.length > MAX_ALLOW) {
    const text = `The secret would be allowed for ${allow.length} ids; at most ${MAX_ALLOW} are possible.`
    throw new ServiceError(215, `${text} Set allow to the ids that are still needed.`)
  }
  const isForAll = ownerId === null && !caller.isOwnerOnly
  const ownerOf = (id: string): string | null | undefined => {
    if (id.startsWith('bot_')) return botUsers.get(id)?.id
    return (id.startsWith('cr_') ? credentials.get(id) : domains.get(id))?.ownerId
  }
  for (const id of allow) {
    if (before.includes(id)) continue
    const owner = ownerOf(id)
    if (owner === undefined || (!isForAll && owner !== ownerId)) {
      throw new ServiceError(
        215,
        `The field allow is not valid: there is no authtoken (cr_…), bot user (bot_…) or domain (rd_…) ${id} in this account.`,
      )
    }
  }
}

function checkName(
  name: string,
  { what, code, emptyCode }: { what: string; code: number; emptyCode: number },
): void {
  if (name === '') throw new ServiceError(emptyCode, `The name of a ${what} cannot be empty.`)
  if (SECRET_NAME.test(name)) return
  throw new ServiceError(code, `The name of a ${what} can have ${SECRET_NAME_FORM}.`)
}

/** The texts do not contain the value. */
function checkValue(value: string): void {
  const bytes = Buffer.byteLength(value)
  if (bytes < MIN_VALUE) {
    throw new ServiceError(24003, `The value of a secret must have at least ${MIN_VALUE} bytes.`)
  }
  if (bytes <= MAX_VALUE) return
  throw new ServiceError(24004, `The value has ${bytes} bytes; at most ${MAX_VALUE} are allowed.`)
}

const unique = (ids: readonly string[]) => [...new Set(ids)]
const madeBy = ({ id }: Caller, now: number) => ({
  ...{ createdAt: now, createdBy: id },
  ...{ updatedAt: now, updatedBy: id },
})
const changedBy = ({ id }: Caller, now: number) => ({ updatedAt: now, updatedBy: id })

/** Without fields that are present and undefined. */
function withoutMissing<T extends object>(
  change: T,
): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(change).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as { [K in keyof T]?: Exclude<T[K], undefined> }
}

/** Online endpoints that name a secret. */
interface Users {
  /** The first endpoints, at most MAX_USERS. */
  readonly shown: Endpoint[]
  count: number
}

/** Which online endpoints name which secret. Read once for all items of an answer. */
class SecretUsers {
  readonly #deps: Pick<VaultSecretsDeps, 'registry' | 'secretAccess'>
  #known: Map<string, Users> | undefined

  constructor(deps: Pick<VaultSecretsDeps, 'registry' | 'secretAccess'>) {
    this.#deps = deps
  }

  of({ id }: VaultSecret): Readonly<Users> {
    this.#known ??= this.#read()
    return this.#known.get(id) ?? { shown: [], count: 0 }
  }

  #read(): Map<string, Users> {
    const users = new Map<string, Users>()
    const idOf = this.#idsByName()
    for (const endpoint of this.#deps.registry.all()) {
      for (const name of endpoint.policy.usedSecrets) {
        const id = idOf(endpoint.ownerId, name)
        if (id !== undefined) addUser(users, id, endpoint)
      }
    }
    setImmediate(() => {
      this.#known = undefined
    })
    return users
  }

  /** Looks up each name of an account once, because many endpoints have the same policy. */
  #idsByName(): (ownerId: string | null, name: SecretName) => string | undefined {
    const known = new Map<string, string | undefined>()
    return (ownerId, name) => {
      const key = `${ownerId ?? ''} ${name.vault} ${name.name}`
      if (!known.has(key)) known.set(key, this.#deps.secretAccess.named(ownerId, name)?.id)
      return known.get(key)
    }
  }
}

function addUser(users: Map<string, Users>, id: string, endpoint: Endpoint): void {
  const known = users.get(id) ?? { shown: [], count: 0 }
  if (known.count < MAX_USERS) known.shown.push(endpoint)
  known.count += 1
  users.set(id, known)
}

function viewSecret(
  secret: VaultSecret,
  baseUrl: string,
  { vault, users }: { vault: Vault | undefined; users: Readonly<Users> },
): SecretView {
  const { id, name, description, metadata, ownerId, allow, vaultId } = secret
  const key = (keyId: string) => ({ id: keyId, uri: `${baseUrl}/api_keys/${keyId}` })
  return {
    id,
    uri: `${baseUrl}/vault_secrets/${id}`,
    created_at: timestamp(secret.createdAt),
    updated_at: timestamp(secret.updatedAt),
    owner_id: ownerId,
    name,
    description,
    metadata,
    created_by: key(secret.createdBy),
    last_updated_by: key(secret.updatedBy),
    vault: { id: vaultId, uri: `${baseUrl}/vaults/${vaultId}` },
    vault_name: vault?.name ?? '',
    allow: [...allow],
    // In milliseconds: the audit trail shows each new value by this field.
    value_set_at: new Date(secret.valueAt).toISOString(),
    used_by: users.shown.map(({ id, url }) => ({ id, uri: `${baseUrl}/endpoints/${id}`, url })),
    used_by_count: users.count,
  }
}

/** Each gateway knows the endpoints of its devices, and all cloud endpoints. */
function combineSecrets([first, ...rest]: readonly [SecretView, ...SecretView[]]): SecretView {
  const all = [first, ...rest].flatMap(({ used_by }) => used_by)
  const users = [...new Map(all.map((it) => [it.id, it])).values()]
  const counts = [first, ...rest].map(({ used_by_count: count }) => count)
  return {
    ...first,
    used_by: users.slice(0, MAX_USERS),
    used_by_count: Math.max(users.length, ...counts),
  }
}
