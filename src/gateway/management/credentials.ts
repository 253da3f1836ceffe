import * as z from 'zod'
import { formatListenAddress } from '../../base/listen-address.ts'
import type { Secret } from '../../base/secret.ts'
import { type NameInRule, nameInRule } from '../access/acl.ts'
import type { Authority } from '../access/authority.ts'
import type { CredentialIssuer } from '../access/credential-issuer.ts'
import { rulesWithoutEffect } from '../access/lost-names.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { isInternal } from '../records/domain-name.ts'
import type { ReservedAddrStore } from '../records/reserved-addr-store.ts'
import { ServiceError } from '../records/service-error.ts'
import { parseBody, texts } from './body.ts'
import { renamed } from './bot-users.ts'
import { type Caller, ownerFor, refuseOwnerOnly } from './caller.ts'
import type { Resource } from './resource.ts'
import { tokenFields, viewToken } from './token-view.ts'

const acl = z.array(z.string()).optional()

export const CredentialCreate = z.strictObject({
  ...texts,
  acl,
  owner_id: z.string().nullable().optional(),
})
export const CredentialUpdate = z.strictObject({ ...texts, acl })
export const CredentialView = z.strictObject({
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
export function credentials({
  credentials: store,
  authority,
  reservedAddrs,
  issuer,
}: CredentialsDeps): Resource<Credential> {
  const view = (credential: Credential, baseUrl: string, token?: Secret) =>
    ({
      ...viewToken(credential, `${baseUrl}/credentials`, token),
      acl: [...credential.acl],
    }) satisfies z.infer<typeof CredentialView>

  const withoutEffect = (credential: Credential) => {
    const rules = rulesWithoutEffect(credential, authority.owners)
    return rules.length > 0 && { rules_without_effect: rules }
  }

  const ownerOfAddress = ({ host, port }: NameInRule) =>
    typeof port === 'number'
      ? reservedAddrs.find(formatListenAddress({ host, port }))?.ownerId
      : undefined

  /** Rules are leave: an owner gives it for its own names, what it was given by others may stay. */
  function checkRules(caller: Caller, rules: readonly string[], given: readonly string[]): void {
    if (!caller.isOwnerOnly) return
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

  return {
    path: 'credentials',
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
    create: async (body, baseUrl, caller) => {
      const { owner_id, ...request } = parseBody(CredentialCreate, body)
      const ownerId = ownerFor(caller, owner_id && renamed(owner_id, 'bot'))
      const { credential, authtoken } = await issuer.createCredential(
        { ...request, ownerId },
        () => checkRules(caller, request.acl ?? [], []),
        authorOf(caller),
      )
      return view(credential, baseUrl, authtoken)
    },
    update: (credential, body, caller) => {
      const change = parseBody(CredentialUpdate, body)
      if (Object.keys(change).length === 0) {
        throw new ServiceError(
          606,
          'The request changes nothing. Set description, metadata or acl.',
        )
      }
      return issuer.updateCredential(
        credential,
        change,
        ({ acl }) => checkRules(caller, change.acl ?? [], acl),
        authorOf(caller),
      )
    },
    remove: (credential) => issuer.deleteCredential(credential),
  }
}

/** A key that is for one owner gives nothing of the gateway's owner. */
const authorOf = ({ isOwnerOnly }: Caller) => ({ isGranting: !isOwnerOnly })
