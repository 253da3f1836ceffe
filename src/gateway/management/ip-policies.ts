import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Database } from '../../store/database.ts'
import type { IpPolicy, IpPolicyStore } from '../records/ip-policy-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import { checkLength, present, ServiceError } from '../records/service-error.ts'
import { parseBody, texts } from './body.ts'
import { ownedByGateway, refuseForeign } from './caller.ts'
import type { Resource } from './resource.ts'
import { Timestamp, timestamp } from './timestamp.ts'

const MAX_DESCRIPTION = 255
const MAX_METADATA = 4_096

export const IpPolicyCreate = z.strictObject(texts)
export const IpPolicyUpdate = IpPolicyCreate
export const IpPolicyView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  created_at: Timestamp,
  description: z.string(),
  metadata: z.string(),
})

export interface IpPoliciesDeps {
  readonly database: Pick<Database, 'change'>
  readonly ipPolicies: IpPolicyStore
  readonly ids: IdSource
  readonly clock: Clock
}

/** Named sets of address rules, for `restrict-ips`. */
export function ipPolicies({
  database,
  ipPolicies: store,
  ids,
  clock,
}: IpPoliciesDeps): Resource<IpPolicy> {
  const view = ({ createdAt, ...policy }: IpPolicy, baseUrl: string) =>
    ({
      ...policy,
      uri: `${baseUrl}/ip_policies/${policy.id}`,
      created_at: timestamp(createdAt),
    }) satisfies z.infer<typeof IpPolicyView>
  return {
    path: 'ip_policies',
    collection: 'ip_policies',
    prefix: 'ipp',
    schema: IpPolicyView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ownedByGateway,
    create: async (body, baseUrl, caller) => {
      refuseForeign(caller, 'IP policies')
      const { description = '', metadata = '' } = parseBody(IpPolicyCreate, body)
      checkTexts({ description, metadata })
      const policy = { id: ids.next('ipp'), description, metadata, createdAt: clock.now() }
      await database.change(() => store.insert(policy), { concludes: policy.id })
      return view(policy, baseUrl)
    },
    update: ({ id }, body) => {
      const change = parseBody(IpPolicyUpdate, body)
      if (Object.keys(change).length === 0) {
        throw new ServiceError(1400, 'The request changes nothing. Set description or metadata.')
      }
      const keep = () => {
        const policy = present(store.get(id))
        const { description = policy.description, metadata = policy.metadata } = change
        checkTexts({ description, metadata })
        const updated = { ...policy, description, metadata }
        store.replace(updated)
        return updated
      }
      return database.change(keep, { concludes: id })
    },
    remove: async ({ id }) => {
      await database.change(() => store.delete(id), { concludes: id, mayUseReserve: true })
    },
  }
}

/** Rules have the same bounds. */
export function checkTexts(item: { description: string; metadata: string }): void {
  checkLength(item.description, MAX_DESCRIPTION, 215, 'description')
  checkLength(item.metadata, MAX_METADATA, 215, 'metadata')
}
