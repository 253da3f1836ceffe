import { z } from 'zod'
import type { Secret } from '../../base/secret.ts'
import type { ApiKey, ApiKeyStore } from '../api-key-store.ts'
import type { CredentialIssuer } from '../credential-issuer.ts'
import { parseBody, texts } from './body.ts'
import { renamed } from './bot-users.ts'
import type { Resource } from './resource.ts'
import { timestamp } from './timestamp.ts'

export const ApiKeyCreate = z.strictObject({
  ...texts,
  owner_id: z.string().nullable().optional(),
})
export const ApiKeyUpdate = z.strictObject(texts)
export const ApiKeyView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  created_at: z.string(),
  description: z.string(),
  metadata: z.string(),
  /** Only in the answer to its creation. */
  token: z.string().nullable(),
  owner_id: z.string().nullable(),
})

export interface ApiKeysDeps {
  readonly apiKeys: ApiKeyStore
  readonly issuer: CredentialIssuer
}

/** The keys to this API. */
export function apiKeys({ apiKeys: store, issuer }: ApiKeysDeps): Resource<ApiKey> {
  const view = (apiKey: ApiKey, baseUrl: string, token?: Secret) =>
    ({
      id: apiKey.id,
      uri: `${baseUrl}/api_keys/${apiKey.id}`,
      created_at: timestamp(apiKey.createdAt),
      description: apiKey.description,
      metadata: apiKey.metadata,
      token: token?.reveal() ?? null,
      owner_id: apiKey.ownerId,
    }) satisfies z.infer<typeof ApiKeyView>
  return {
    path: 'api_keys',
    collection: 'keys',
    prefix: 'ak',
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: (apiKey, baseUrl) => view(apiKey, baseUrl),
    create: (body, baseUrl) => {
      const { owner_id, ...request } = parseBody(ApiKeyCreate, body)
      const ownerId = owner_id && renamed(owner_id, 'bot')
      const { apiKey, token } = issuer.createApiKey({ ...request, ownerId })
      return view(apiKey, baseUrl, token)
    },
    update: (apiKey, body) => issuer.updateApiKey(apiKey, parseBody(ApiKeyUpdate, body)),
    remove: (apiKey) => issuer.deleteApiKey(apiKey),
  }
}
