import * as z from 'zod'
import type { Secret } from '../../base/secret.ts'
import type { ApiKeyChange, CredentialIssuer } from '../access/credential-issuer.ts'
import { API_KEY_SCOPES, type ApiKey, type ApiKeyStore } from '../records/api-key-store.ts'
import { parseBody, texts } from './body.ts'
import { renamed } from './bot-users.ts'
import { type Caller, checkNoMore, ownerFor } from './caller.ts'
import type { Resource } from './resource.ts'
import { Timestamp, timestamp } from './timestamp.ts'
import { tokenFields, viewToken } from './token-view.ts'

const settings = {
  ...texts,
  /** Unless given, the description, or the id of the key. */
  name: z.string().trim().min(1).max(255).optional(),
  scope: z.enum(API_KEY_SCOPES, 'must be "read" or "write"').optional(),
  /** Unless given, true for a key that has an owner. */
  owner_only: z.boolean().optional(),
  /** Null for no end. */
  expires_at: z.iso
    .datetime({ offset: true, error: 'must be a time such as 2030-01-31T09:00:00Z' })
    .nullable()
    .optional(),
}

export const ApiKeyCreate = z.strictObject({
  ...settings,
  owner_id: z.string().nullable().optional(),
})
export const ApiKeyUpdate = z.strictObject(settings)
export const ApiKeyView = z.strictObject({
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
    collection: 'keys',
    prefix: 'ak',
    schema: ApiKeyView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: (apiKey, baseUrl) => view(apiKey, baseUrl),
    ownerOf: ({ ownerId }) => ownerId,
    create: async (body, baseUrl, caller) => {
      const { owner_id, ...settings } = parseBody(ApiKeyCreate, body)
      const ownerId = ownerFor(caller, owner_id && renamed(owner_id, 'bot'))
      const { isOwnerOnly = ownerId !== null || caller.isOwnerOnly, ...request } =
        changeOf(settings)
      checkNoMore(caller, { isOwnerOnly, expiresAt: request.expiresAt ?? null })
      const { apiKey, token } = await issuer.createApiKey({ ...request, ownerId, isOwnerOnly })
      return view(apiKey, baseUrl, token)
    },
    update: (apiKey, body, caller) => {
      const change = changeOf(parseBody(ApiKeyUpdate, body))
      checkChange(caller, apiKey, change)
      return issuer.updateApiKey(apiKey, change)
    },
    remove: (apiKey) => issuer.deleteApiKey(apiKey),
  }
}

function changeOf(settings: z.infer<typeof ApiKeyUpdate>): ApiKeyChange {
  const { owner_only: isOwnerOnly, expires_at, ...change } = settings
  const expiresAt = typeof expires_at === 'string' ? Date.parse(expires_at) : expires_at
  return { ...change, isOwnerOnly, expiresAt }
}

/** What a key may do already may stay, whoever gave it. What it gets is judged with the rest of it. */
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
