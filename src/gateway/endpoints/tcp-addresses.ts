import { randomInt } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import {
  formatListenAddress,
  hasPort,
  listenProblem,
  type PortRange,
  parseListenAddress,
} from '../../base/listen-address.ts'
import { isInternal } from '../records/domain-name.ts'
import { ServiceError } from '../records/service-error.ts'
import { type DeviceMark, isSameDevice } from './disconnected-name.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

/** A port that another program used is not assigned for this long. */
const FOREIGN_MS = 60_000
/**
 * An assigned port is not assigned again for this long: it enters the registry only after its policy is
 * compiled.
 */
const GIVEN_MS = 5_000
/** An account may have at most a quarter of the addresses, besides its reserved addresses. */
const OWNER_PART = 4

export interface TcpAddressesOptions {
  /** `host` is the host name in the addresses, which visitors connect to. */
  readonly range: PortRange
  readonly registry: EndpointRegistry
  /** Whether the address is reserved for any account. A reserved address is only assigned on request. */
  readonly isReserved: (address: string) => boolean
  readonly clock: Clock
}

/** A request for any free address. */
export interface AddressWish extends DeviceMark {
  readonly ownerId: string | null
  /** Its previous endpoint, as the SDK reports on a reconnect. Empty at first. */
  readonly endpointId: string
  readonly forwardsTo: string
  /** Address that the gateway has chosen for the account before, proved by its token. */
  readonly given?: string | undefined
  /** Whether it may have a certain address. */
  readonly mayBind: (address: string) => boolean
}

/** Whether another program uses the port, by the error of the system. */
export function isPortTaken(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE'
}

/** Addresses for TCP endpoints: `host:port`, with the same host for all. */
export class TcpAddresses {
  readonly range: PortRange
  readonly #registry: EndpointRegistry
  readonly #isReserved: (address: string) => boolean
  readonly #clock: Clock
  /**
   * Ports that are not assigned before this time (monotonic): another program had them, or they were just
   * assigned. Kept afterwards: the lowest time is the port that was assigned longest ago.
   */
  readonly #notBefore = new Map<number, number>()

  constructor({ range, registry, isReserved, clock }: TcpAddressesOptions) {
    this.range = { ...range, host: range.host.toLowerCase() }
    this.#registry = registry
    this.#isReserved = isReserved
    this.#clock = clock
  }

  /** All addresses, in the format of an ACL rule of an authtoken: `[::1]:*`. */
  get anyPort(): string {
    return this.#at(0).replace(/0$/, '*')
  }

  get first(): string {
    return this.#at(this.range.first)
  }

  /** All addresses, for people. */
  get shown(): string {
    return `${this.first} to ${this.#at(this.range.last)}`
  }

  /** Whether the address is in the range. Addresses stored before a change of the range may not be. */
  has(address: string): boolean {
    const parsed = parseListenAddress(address)
    return parsed?.host === this.range.host && hasPort(this.range, parsed.port)
  }

  /**
   * Throws ServiceError 15013 if an account has used its share of the addresses, online or disconnected. So
   * addresses are left for others. The gateway's owner may use all addresses. An account keeps an address
   * that it already has.
   */
  requireShare(ownerId: string | null, address: string): void {
    if (ownerId === null || isInternal(address) || this.#isReserved(address)) return
    if (this.#registry.match(address, 'tcp')?.ownerId === ownerId) return
    const { first, last } = this.range
    const most = Math.max(1, Math.floor((last - first + 1) / OWNER_PART))
    // The endpoints of a pool have one address.
    const held = new Set<string>()
    for (const names of [this.#registry.all(), this.#registry.disconnectedOf(ownerId)]) {
      for (const name of names) {
        const isCounted =
          name.protocol === 'tcp' && name.ownerId === ownerId && !isInternal(name.host)
        if (isCounted && !this.#isReserved(name.host)) held.add(name.host)
      }
    }
    if (held.size < most) return
    throw new ServiceError(
      15013,
      `The account is at its limit of ${held.size} TCP addresses. Reserve more, or release some.`,
    )
  }

  /**
   * Returns the address in its stored form. Throws the ServiceError `code` if the range does not contain it.
   */
  read(text: string, code: number): string {
    const address = parseListenAddress(text.toLowerCase())
    if (address && this.has(formatListenAddress(address))) return formatListenAddress(address)
    throw new ServiceError(
      code,
      `The address ${text} is not served by this gateway. Its TCP addresses are ${this.shown}.`,
    )
  }

  portOf(address: string): number {
    return parseListenAddress(address)?.port ?? 0
  }

  /**
   * Returns the refusal for an address that could not be listened on, with the error of the system as its
   * cause. The port of another program is not assigned for a while.
   */
  refuse(address: string, error: unknown): ServiceError {
    const isTaken = isPortTaken(error)
    const blockMs = isTaken ? FOREIGN_MS : 0
    this.#notBefore.set(this.portOf(address), this.#clock.monotonic() + blockMs)
    const remedy = isTaken
      ? 'Request another address, or leave it out.'
      : 'Check GATEWAY_TCP_LISTEN and the limits of the gateway.'
    return new ServiceError(
      334,
      `The address ${address} is not available: ${listenProblem(error)}. ${remedy}`,
      { cause: error },
    )
  }

  /**
   * Returns the address that the gateway gave to this tunnel before if it is free, else any free address.
   * Throws ServiceError 15013 if all are taken, 316 if the rules allow no address.
   */
  draw(wish: AddressWish): string {
    const address = this.#keptFor(wish) ?? this.#givenTo(wish) ?? this.drawFree(wish.mayBind)
    this.#notBefore.set(this.portOf(address), this.#clock.monotonic() + GIVEN_MS)
    return address
  }

  /**
   * Returns any address that is neither used nor reserved: a port that was not assigned before, or else the
   * port that was assigned longest ago, because visitors may still know it. Throws ServiceError 15013, or 316
   * if it may have no address at all.
   */
  drawFree(mayHave: (address: string) => boolean = () => true): string {
    const { first, last } = this.range
    const count = last - first + 1
    const start = randomInt(count)
    const now = this.#clock.monotonic()
    let isAllowed = false
    let oldest: { readonly address: string; readonly notBefore: number } | undefined
    for (let step = 0; step < count; step += 1) {
      const port = first + ((start + step) % count)
      const address = this.#at(port)
      if (!mayHave(address)) continue
      isAllowed = true
      if (this.#registry.match(address, 'tcp') || this.#isReserved(address)) continue
      const notBefore = this.#notBefore.get(port)
      if (notBefore === undefined) return address
      if (notBefore <= now && notBefore < (oldest?.notBefore ?? Number.POSITIVE_INFINITY)) {
        oldest = { address, notBefore }
      }
    }
    if (oldest) return oldest.address
    if (!isAllowed) {
      throw new ServiceError(
        316,
        `The authtoken has no ACL rule for a TCP address. The rule bind:${this.anyPort} allows every address.`,
      )
    }
    throw new ServiceError(
      15013,
      'No TCP address is free. Release an address, or widen GATEWAY_TCP_LISTEN or the ACL rules of the authtoken.',
    )
  }

  #keptFor({ ownerId, endpointId, forwardsTo, mayBind, ...device }: AddressWish) {
    for (const name of this.#registry.disconnectedOf(ownerId)) {
      const { host, drawn } = name
      if (
        !drawn ||
        !this.has(host) ||
        !mayBind(host) ||
        this.#registry.match(host, 'tcp')?.host !== host
      )
        continue
      if (!isSameDevice(name, device)) continue
      if (drawn.endpointId === endpointId) return host
      if (device.deviceId !== undefined && drawn.forwardsTo === forwardsTo) return host
    }
    return undefined
  }

  #givenTo({ given, mayBind }: AddressWish): string | undefined {
    if (given === undefined || !this.has(given) || !mayBind(given)) return undefined
    const isFree = !this.#registry.match(given, 'tcp') && !this.#isReserved(given)
    return isFree ? given : undefined
  }

  #at(port: number): string {
    return formatListenAddress({ host: this.range.host, port })
  }
}
