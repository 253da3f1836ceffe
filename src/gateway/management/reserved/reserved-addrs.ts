import * as z from 'zod'
import type { AddrRegistrar } from '../../endpoints/addr-registrar.ts'
import type { ReservedAddr, ReservedAddrStore } from '../../records/reserved-addr-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import { parseBody, texts } from '../body.ts'
import { renamed } from '../bot-users.ts'
import { ownerFor } from '../caller.ts'
import type { Resource } from '../resource.ts'
import { Timestamp, timestamp } from '../timestamp.ts'

export const ReservedAddrCreate = z.strictObject({
  ...texts,
  addr: z.string().optional().describe('host:port of this gateway; default: any free address'),
  region: z.string().optional(),
  owner_id: z.string().nullable().optional(),
})
export const ReservedAddrUpdate = z.strictObject({
  ...texts,
  owner_id: z.string().nullable().optional(),
})

export const ReservedAddrView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  created_at: Timestamp,
  description: z.string(),
  metadata: z.string(),
  addr: z.string(),
  region: z.string(),
  /** Whose authtokens alone may bind it; left out while it is the gateway's own. */
  owner_id: z.string().optional(),
})

export interface ReservedAddrsDeps {
  readonly reservedAddrs: ReservedAddrStore
  readonly addrRegistrar: AddrRegistrar
}

/** TCP addresses that are kept for one account. */
export function reservedAddrs({
  reservedAddrs: store,
  addrRegistrar,
}: ReservedAddrsDeps): Resource<ReservedAddr> {
  const view = ({ ownerId, createdAt, ...addr }: ReservedAddr, baseUrl: string) =>
    ({
      ...addr,
      uri: `${baseUrl}/reserved_addrs/${addr.id}`,
      created_at: timestamp(createdAt),
      ...(ownerId !== null && { owner_id: ownerId }),
    }) satisfies z.infer<typeof ReservedAddrView>
  return {
    path: 'reserved_addrs',
    collection: 'reserved_addrs',
    prefix: 'ra',
    schema: ReservedAddrView,
    page: (request) => store.page(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ({ ownerId }) => ownerId,
    create: async (body, baseUrl, caller) => {
      const { owner_id, ...request } = parseBody(ReservedAddrCreate, body)
      const ownerId = ownerFor(caller, owner_id && renamed(owner_id, 'bot'))
      return view(await addrRegistrar.reserve({ ...request, ownerId }), baseUrl)
    },
    update: (addr, body, caller) => {
      const { owner_id, ...change } = parseBody(ReservedAddrUpdate, body)
      if (Object.keys(change).length === 0 && owner_id === undefined) {
        throw new ServiceError(
          422,
          'The request changes nothing. Set description, metadata or owner_id.',
        )
      }
      const asked = owner_id && renamed(owner_id, 'bot')
      const ownerId = asked === undefined ? undefined : ownerFor(caller, asked)
      return addrRegistrar.update(addr, { ...change, ownerId })
    },
    remove: (addr) => addrRegistrar.release(addr),
  }
}
