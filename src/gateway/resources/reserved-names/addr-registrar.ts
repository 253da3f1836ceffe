import type { Clock } from '../../../base/clock.ts'
import type { Database } from '../../../store/database.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { TcpAddresses } from '../../endpoints/tcp-addresses.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { OwnedAddress } from '../../records/endpoint-protocol.ts'
import type { ReservedAddr, ReservedAddrStore } from '../../records/reserved-addr-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'

const TEXT_CODES = [420, 421] as const
/** A bot user may reserve at most a quarter of the range, so that addresses are left for others. */
const OWNER_PART = 4

export interface AddrRegistrarDeps {
  readonly database: Pick<Database, 'change'>
  readonly reservedAddrs: ReservedAddrStore
  readonly botUsers: BotUserStore
  readonly registry: EndpointRegistry
  /** Unset if TCP endpoints are off. */
  readonly tcpAddresses: TcpAddresses | undefined
  /** Endpoints that are online at other nodes of the cluster. */
  readonly elsewhere?: () => Iterable<OwnedAddress>
  readonly ids: IdSource
  readonly clock: Clock
}

/** Settings of a reserved address that can be chosen at first and changed later. */
export interface AddrSettings {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
  /** Owning bot user; null: the gateway's owner. */
  readonly ownerId?: string | null | undefined
}

/** Reserves and releases TCP addresses. Every refusal is a ServiceError. */
export class AddrRegistrar {
  readonly #deps: AddrRegistrarDeps

  constructor(deps: AddrRegistrarDeps) {
    this.#deps = deps
  }

  /** Reserves the given address, or any free one. */
  async reserve(
    request: AddrSettings & { addr?: string | undefined; region?: string | undefined },
  ): Promise<ReservedAddr> {
    const { reservedAddrs: store, tcpAddresses, ids, clock } = this.#deps
    if (!tcpAddresses) {
      throw new ServiceError(
        332,
        'TCP addresses are off at this gateway. Set GATEWAY_TCP_LISTEN first.',
      )
    }
    const { region = '', description = '', metadata = '', ownerId = null } = request
    const id = ids.next('ra')
    const createdAt = clock.now()
    return this.#change(id, () => {
      checkTexts({ description, metadata }, TEXT_CODES)
      this.#deps.botUsers.checkOwner(ownerId)
      this.#checkShare(ownerId, tcpAddresses)
      const addr = request.addr ? tcpAddresses.read(request.addr, 400) : tcpAddresses.drawFree()
      if (store.find(addr)) throw new ServiceError(413, `The address ${addr} is already reserved.`)
      this.#checkUnused(addr, ownerId)
      const reserved: ReservedAddr = { id, addr, ownerId, region, description, metadata, createdAt }
      store.insert(reserved)
      return reserved
    })
  }

  update({ id }: ReservedAddr, change: AddrSettings): Promise<ReservedAddr> {
    const { reservedAddrs: store } = this.#deps
    return this.#change(id, () => {
      const reserved = present(store.get(id))
      const { description = reserved.description, metadata = reserved.metadata } = change
      const { ownerId = reserved.ownerId } = change
      checkTexts({ description, metadata }, TEXT_CODES)
      if (ownerId !== reserved.ownerId) {
        this.#deps.botUsers.checkOwner(ownerId)
        this.#checkUnused(reserved.addr, ownerId)
      }
      const updated = { ...reserved, description, metadata, ownerId }
      store.replace(updated)
      return updated
    })
  }

  /** Releases an address. Throws ServiceError 446 while an endpoint uses it. */
  async release({ id, addr }: ReservedAddr): Promise<void> {
    const { reservedAddrs, database } = this.#deps
    const release = () => {
      this.#checkUnused(addr, undefined)
      reservedAddrs.delete(id)
    }
    await database.change(release, { concludes: id, mayUseReserve: true })
  }

  #change<T>(id: string, change: () => T): Promise<T> {
    return this.#deps.database.change(change, { concludes: id })
  }

  /** Throws ServiceError 446 while an endpoint of an account other than `mayStay` has the address. */
  #checkUnused(addr: string, mayStay: string | null | undefined): void {
    const { registry, elsewhere } = this.#deps
    const isIt = ({ protocol, host }: OwnedAddress) => protocol === 'tcp' && host === addr
    const [holder = [...(elsewhere?.() ?? [])].find(isIt)] = registry.holdersOf(
      { protocol: 'tcp', host: addr },
      null,
    )
    if (!holder || holder.ownerId === mayStay) return
    throw new ServiceError(446, `The address ${addr} is in use by an online endpoint.`)
  }

  #checkShare(ownerId: string | null, { range }: TcpAddresses): void {
    if (ownerId === null) return
    const most = Math.max(1, Math.floor((range.last - range.first + 1) / OWNER_PART))
    if (this.#deps.reservedAddrs.countOf(ownerId) < most) return
    throw new ServiceError(
      414,
      `The bot user ${ownerId} is at its limit of ${most} reserved addresses, a quarter of all.`,
    )
  }
}

/** Calls `listener` when the owner of an address changes, or its reservation ends. */
export function watchAddrs(
  reservedAddrs: ReservedAddrStore,
  listener: (addr: string) => void,
): void {
  reservedAddrs.onChange(({ before, after }) => {
    const reserved = after ?? before
    if (reserved && before?.ownerId !== after?.ownerId) listener(reserved.addr)
  })
}
