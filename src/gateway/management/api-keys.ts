import * as z from 'zod'
import type { Secret } from '../../base/secret.ts'
import type { CredentialIssuer } from '../access/credential-issuer.ts'
import type { ApiKey, ApiKeyStore } from '../records/api-key-store.ts'
import { parseBody, texts } from './body.ts'
import { renamed } from './bot-users.ts'
import type { Resource } from './resource.ts'
import { tokenFields, viewToken } from './token-view.ts'

export const ApiKeyCreate = z.strictObject({
  ...texts,
  owner_id: z.string().nullable().optional(),
})
export const ApiKeyUpdate = z.strictObject(texts)
export const ApiKeyView = z.strictObject(tokenFields)

export interface ApiKeysDeps {
  readonly apiKeys: ApiKeyStore
  readonly issuer: CredentialIssuer
}

/** The keys to this API. */
export function apiKeys({ apiKeys: store, issuer }: ApiKeysDeps): Resource<ApiKey> {
  const view = (apiKey: ApiKey, baseUrl: string, token?: Secret) =>
    viewToken(apiKey, `${baseUrl}/api_keys`, token)
  return {
    path: 'api_keys',
    collection: 'keys',
    prefix: 'ak',
    schema: ApiKeyView,
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
