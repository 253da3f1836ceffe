import * as z from 'zod'
import type { Secret } from '../../base/secret.ts'
import type { CredentialIssuer } from '../access/credential-issuer.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { ServiceError } from '../records/service-error.ts'
import { parseBody, texts } from './body.ts'
import { renamed } from './bot-users.ts'
import type { Resource } from './resource.ts'
import { tokenFields, viewToken } from './token-view.ts'

const acl = z.array(z.string()).optional()

export const CredentialCreate = z.strictObject({
  ...texts,
  acl,
  owner_id: z.string().nullable().optional(),
})
export const CredentialUpdate = z.strictObject({ ...texts, acl })
export const CredentialView = z.strictObject({ ...tokenFields, acl: z.array(z.string()) })

export interface CredentialsDeps {
  readonly credentials: CredentialStore
  readonly issuer: CredentialIssuer
}

/** The authtokens of agents. */
export function credentials({ credentials: store, issuer }: CredentialsDeps): Resource<Credential> {
  const view = (credential: Credential, baseUrl: string, token?: Secret) =>
    ({
      ...viewToken(credential, `${baseUrl}/credentials`, token),
      acl: [...credential.acl],
    }) satisfies z.infer<typeof CredentialView>
  return {
    path: 'credentials',
    collection: 'credentials',
    prefix: 'cr',
    schema: CredentialView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view: (credential, baseUrl) => view(credential, baseUrl),
    create: (body, baseUrl) => {
      const { owner_id, ...request } = parseBody(CredentialCreate, body)
      const ownerId = owner_id && renamed(owner_id, 'bot')
      const { credential, authtoken } = issuer.createCredential({ ...request, ownerId })
      return view(credential, baseUrl, authtoken)
    },
    update: (credential, body) => {
      const change = parseBody(CredentialUpdate, body)
      if (Object.keys(change).length === 0) {
        throw new ServiceError(606, 'Give a description, metadata or ACL rules to change.')
      }
      return issuer.updateCredential(credential, change)
    },
    remove: (credential) => issuer.deleteCredential(credential),
  }
}
