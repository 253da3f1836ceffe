import type { Clock } from '../../base/clock.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { ReservedAddr, ReservedAddrStore } from '../records/reserved-addr-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import { checkLength, ServiceError } from '../records/service-error.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'
import type { TcpAddresses } from './tcp-addresses.ts'

const MAX_DESCRIPTION = 255
const MAX_METADATA = 4_096
/** One bot user gets no more of the range: something is left for the others. */
const OWNER_PART = 4

export interface AddrRegistrarDeps {
  readonly reservedAddrs: ReservedAddrStore
  readonly botUsers: BotUserStore
  readonly registry: EndpointRegistry
  /** Unset where there are no TCP endpoints. */
  readonly tcpAddresses: TcpAddresses | undefined
  readonly ids: IdSource
  readonly clock: Clock
  /** After an address has come to somebody else, or is nobody's any more. */
  readonly onChange: (addr: string) => void
}

/** What may be chosen when an address is reserved, and changed later. */
export interface AddrSettings {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
  /** The bot user that it is for; null for the gateway's owner. */
  readonly ownerId?: string | null | undefined
}

/** Reserves TCP addresses and gives them up. Every refusal is a ServiceError. */
export class AddrRegistrar {
  readonly #deps: AddrRegistrarDeps

  constructor(deps: AddrRegistrarDeps) {
    this.#deps = deps
  }

  /** Without an address any that is free. */
  reserve(request: AddrSettings & { addr?: string | undefined; region?: string | undefined }) {
    const { reservedAddrs: store, tcpAddresses, ids, clock, onChange } = this.#deps
    if (!tcpAddresses) {
      throw new ServiceError(
        332,
        'There are no TCP addresses here: set GATEWAY_TCP_LISTEN on the gateway first.',
      )
    }
    const { region = '', description = '', metadata = '', ownerId = null } = request
    checkTexts({ description, metadata })
    this.#checkOwner(ownerId)
    this.#checkShare(ownerId, tcpAddresses)
    const addr = request.addr ? tcpAddresses.read(request.addr, 400) : tcpAddresses.drawFree()
    if (store.find(addr)) throw new ServiceError(413, `The address ${addr} is reserved already.`)
    this.#checkUnused(addr, ownerId)
    const createdAt = clock.now()
    const id = ids.next('ra')
    const reserved: ReservedAddr = { id, addr, ownerId, region, description, metadata, createdAt }
    store.insert(reserved)
    onChange(addr)
    return reserved
  }

  update(reserved: ReservedAddr, change: AddrSettings): ReservedAddr {
    const { description = reserved.description, metadata = reserved.metadata } = change
    const { ownerId = reserved.ownerId } = change
    checkTexts({ description, metadata })
    if (ownerId !== reserved.ownerId) {
      this.#checkOwner(ownerId)
      this.#checkUnused(reserved.addr, ownerId)
    }
    const updated = { ...reserved, description, metadata, ownerId }
    this.#deps.reservedAddrs.replace(updated)
    if (ownerId !== reserved.ownerId) this.#deps.onChange(reserved.addr)
    return updated
  }

  /** Gives an address up; refused with 446 while an endpoint has it. */
  release({ id, addr }: ReservedAddr): void {
    this.#checkUnused(addr, undefined)
    this.#deps.reservedAddrs.delete(id)
    this.#deps.onChange(addr)
  }

  /** Throws ServiceError 446 while an endpoint of another account than `mayStay` has the address. */
  #checkUnused(addr: string, mayStay: string | null | undefined): void {
    const [holder] = this.#deps.registry.holdersOf({ protocol: 'tcp', host: addr }, null)
    if (!holder || holder.ownerId === mayStay) return
    throw new ServiceError(446, `The address ${addr} is in use: its endpoint is online.`)
  }

  #checkOwner(ownerId: string | null): void {
    if (ownerId === null || this.#deps.botUsers.get(ownerId)) return
    throw new ServiceError(634, `There is no bot user ${ownerId} to own this.`)
  }

  #checkShare(ownerId: string | null, { range }: TcpAddresses): void {
    if (ownerId === null) return
    const most = Math.max(1, Math.floor((range.last - range.first + 1) / OWNER_PART))
    if (this.#deps.reservedAddrs.countOf(ownerId) < most) return
    throw new ServiceError(
      414,
      `The bot user ${ownerId} has ${most} reserved addresses, a quarter of all: it may not have more.`,
    )
  }
}

function checkTexts({ description, metadata }: { description: string; metadata: string }): void {
  checkLength(description, MAX_DESCRIPTION, 420, 'description')
  checkLength(metadata, MAX_METADATA, 421, 'metadata')
}
