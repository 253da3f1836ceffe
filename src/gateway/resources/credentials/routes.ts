import * as z from 'zod'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { Secret } from '../../../base/secret.ts'
import { type NameInRule, nameInRule, rulesWithoutEffect } from '../../access/acl.ts'
import type { Authority } from '../../access/authority.ts'
import type { ApiKeyChange, CredentialIssuer } from '../../access/credential-issuer.ts'
import { API_KEY_SCOPES, type ApiKey, type ApiKeyStore } from '../../records/api-key-store.ts'
import type { Credential, CredentialStore } from '../../records/credential-store.ts'
import { isInternal } from '../../records/domain-name.ts'
import type { ReservedAddrStore } from '../../records/reserved-addr-store.ts'
import { type Caller, checkNoMore, ownerFor, refuseOwnerOnly } from '../common/caller.ts'
import { itemFields, requireChange, Timestamp, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'

/** Fields of authtokens and API keys. */
const tokenFields = {
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  /** Only in the answer to its creation. */
  token: z.string().nullable(),
  owner_id: z.string().nullable(),
}
const TokenView = z.strictObject(tokenFields)

function viewToken(
  {
    id,
    createdAt,
    description,
    metadata,
    ownerId,
  }: Omit<Credential, 'acl' | 'granted' | 'tokenHash' | 'successor'>,
  listUri: string,
  token: Secret | undefined,
): z.infer<typeof TokenView> {
  return {
    id,
    uri: `${listUri}/${id}`,
    created_at: timestamp(createdAt),
    description,
    metadata,
    token: token?.reveal() ?? null,
    owner_id: ownerId,
  }
}

const settings = {
  ...texts,
  name: z.string().trim().min(1).max(255).optional(),
  scope: z.enum(API_KEY_SCOPES, 'must be "read" or "write"').optional(),
  owner_only: z.boolean().optional(),
  /** Null for no end. */
  expires_at: z.iso
    .datetime({ offset: true, error: 'must be a time such as 2030-01-31T09:00:00Z' })
    .nullable()
    .optional(),
}

const ApiKeyCreate = z.strictObject({
  ...texts,
  name: settings.name.describe('default: the description, otherwise the id of the key'),
  scope: settings.scope.describe('default: write'),
  owner_only: settings.owner_only.describe('default: true for a key with an owner_id'),
  expires_at: settings.expires_at.describe('default: null, the key has no end'),
  owner_id: z.string().nullable().optional().describe("default: null, the gateway's owner"),
})
const ApiKeyUpdate = z.strictObject(settings)
const ApiKeyView = z.strictObject({
  ...tokenFields,
  name: z.string(),
  scope: z.enum(API_KEY_SCOPES),
  owner_only: z.boolean(),
  expires_at: Timestamp.nullable(),
  /** To the minute; null when it was never used. */
  last_used_at: Timestamp.nullable(),
})

export interface ApiKeysDeps {
  readonly apiKeys: ApiKeyStore
  readonly issuer: CredentialIssuer
}

/** The keys to this API. */
export function apiKeys({ apiKeys: store, issuer }: ApiKeysDeps): Resource<ApiKey> {
  const view = (apiKey: ApiKey, baseUrl: string, token?: Secret) =>
    ({
      ...viewToken(apiKey, `${baseUrl}/api_keys`, token),
      name: apiKey.name,
      scope: apiKey.scope,
      owner_only: apiKey.isOwnerOnly,
      expires_at: apiKey.expiresAt === null ? null : timestamp(apiKey.expiresAt),
      last_used_at: apiKey.lastUsedAt === null ? null : timestamp(apiKey.lastUsedAt),
    }) satisfies z.infer<typeof ApiKeyView>
  return {
    path: 'api_keys',
    noun: 'ApiKey',
    about:
      'Credentials for this API. An empty body creates a key that may change everything, without an end.',
    collection: 'keys',
    prefix: 'ak',
    schema: ApiKeyView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: (apiKey, baseUrl) => view(apiKey, baseUrl),
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ ApiKeyCreate }, async ({ owner_id, ...settings }, { baseUrl, caller }) => {
      const ownerId = ownerFor(caller, owner_id)
      const { isOwnerOnly = ownerId !== null || caller.isOwnerOnly, ...request } =
        changeOf(settings)
      checkNoMore(caller, { isOwnerOnly, expiresAt: request.expiresAt ?? null })
      const { apiKey, token } = await issuer.createApiKey({ ...request, ownerId, isOwnerOnly })
      return view(apiKey, baseUrl, token)
    }),
    update: withBody({ ApiKeyUpdate }, (body, { item, caller }) => {
      const change = changeOf(body)
      checkChange(caller, item, change)
      return issuer.updateApiKey(item, change)
    }),
    remove: (apiKey) => issuer.deleteApiKey(apiKey),
  }
}

function changeOf(settings: z.infer<typeof ApiKeyUpdate>): ApiKeyChange {
  const { owner_only: isOwnerOnly, expires_at, ...change } = settings
  const expiresAt = typeof expires_at === 'string' ? Date.parse(expires_at) : expires_at
  return { ...change, isOwnerOnly, expiresAt }
}

/** Existing rights of a key may stay. New rights are checked together with the others. */
function checkChange(caller: Caller, apiKey: ApiKey, change: ApiKeyChange): void {
  const { scope = apiKey.scope, isOwnerOnly = apiKey.isOwnerOnly } = change
  const { expiresAt = apiKey.expiresAt } = change
  const gets =
    (scope === 'write' && apiKey.scope !== 'write') ||
    (!isOwnerOnly && apiKey.isOwnerOnly) ||
    isLater(expiresAt, apiKey.expiresAt)
  if (gets) checkNoMore(caller, { isOwnerOnly, expiresAt })
}

/** Null is never. */
function isLater(end: number | null, than: number | null): boolean {
  return than !== null && (end === null || end > than)
}

const acl = z.array(z.string()).optional()

const CredentialCreate = z.strictObject({
  ...texts,
  acl,
  owner_id: z.string().nullable().optional(),
})
const CredentialUpdate = z.strictObject({ ...texts, acl })
const CredentialView = z.strictObject({
  ...tokenFields,
  acl: z.array(z.string()),
  /** Only where rules give no names, with the fix. */
  rules_without_effect: z.array(z.strictObject({ rule: z.string(), msg: z.string() })).optional(),
})

export interface CredentialsDeps {
  readonly credentials: CredentialStore
  readonly authority: Authority
  readonly reservedAddrs: ReservedAddrStore
  readonly issuer: CredentialIssuer
}

/** The authtokens of agents. */
export function credentials(deps: CredentialsDeps): Resource<Credential> {
  const { credentials: store, authority, issuer } = deps
  const view = (credential: Credential, baseUrl: string, token?: Secret) =>
    ({
      ...viewToken(credential, `${baseUrl}/credentials`, token),
      acl: [...credential.acl],
    }) satisfies z.infer<typeof CredentialView>

  const withoutEffect = (credential: Credential) => {
    const rules = rulesWithoutEffect(credential, authority.owners)
    return rules.length > 0 && { rules_without_effect: rules }
  }

  return {
    path: 'credentials',
    noun: 'Credential',
    about: 'Authtokens and their ACL rules.',
    collection: 'credentials',
    prefix: 'cr',
    schema: CredentialView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    // A new authtoken is answered with the fields of its contract alone.
    view: (credential, baseUrl, viewer) => ({
      ...view(credential, baseUrl),
      ...(viewer && withoutEffect(credential)),
    }),
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody(
      { CredentialCreate },
      async ({ owner_id, ...request }, { baseUrl, caller }) => {
        const ownerId = ownerFor(caller, owner_id)
        const { credential, authtoken } = await issuer.createCredential(
          { ...request, ownerId },
          () => checkRules(deps, caller, request.acl ?? [], []),
          authorOf(caller),
        )
        return view(credential, baseUrl, authtoken)
      },
    ),
    update: withBody({ CredentialUpdate }, (change, { item, caller }) => {
      requireChange(change, 606, 'description, metadata or acl')
      return issuer.updateCredential(
        item,
        change,
        ({ acl }) => checkRules(deps, caller, change.acl ?? [], acl),
        authorOf(caller),
      )
    }),
    remove: (credential) => issuer.deleteCredential(credential),
  }
}

/** A key that is for one owner gives nothing of the gateway's owner. */
const authorOf = ({ isOwnerOnly }: Caller) => ({ isGranting: !isOwnerOnly })

/** An owner can grant rules only for its own names. Rules granted by others may stay. */
export function checkRules(
  { authority, reservedAddrs }: Pick<CredentialsDeps, 'authority' | 'reservedAddrs'>,
  caller: Caller,
  rules: readonly string[],
  given: readonly string[],
): void {
  if (!caller.isOwnerOnly) return
  const ownerOfAddress = ({ host, port }: NameInRule) =>
    typeof port === 'number'
      ? reservedAddrs.find(formatListenAddress({ host, port }))?.ownerId
      : undefined
  for (const rule of rules) {
    const name = nameInRule(rule)
    const isOwn =
      name !== undefined &&
      !name.isShared &&
      (isInternal(name.host) ||
        authority.owners.reservationOf(name.host)?.ownerId === caller.ownerId ||
        ownerOfAddress(name) === caller.ownerId)
    if (!isOwn && !given.includes(rule)) {
      refuseOwnerOnly(caller, `the ACL rule ${rule} is outside its domains`)
    }
  }
}
