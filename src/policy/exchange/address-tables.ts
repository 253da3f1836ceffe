import type { Account } from '../expression/account.ts'

/** Known location of an address. Unknown texts are empty, and unknown locations are not in the EU. */
export interface AddressLocation extends RegisteredLocation {
  readonly latitude: string
  readonly longitude: string
  /** In km. */
  readonly radius: string
  readonly postalCode: string
  /** Country of registration of the address owner. */
  readonly registered: RegisteredLocation
}

export interface RegisteredLocation {
  readonly city: string
  readonly continent: string
  readonly country: string
  /** ISO 3166-1: `DE`. */
  readonly countryCode: string
  readonly isEu: boolean
  readonly metroCode: string
  readonly subdivision: string
  /** `Europe/Berlin`. */
  readonly timezone: string
}

/** The autonomous system of an address; 0 and empty if unknown. */
export interface AddressNetwork {
  readonly number: number
  readonly organization: string
}

/** Which tables there may be. */
export type AddressTable = 'geo' | 'asn'

/** Tables of addresses. Each returns undefined while its table cannot be read. */
export interface AddressTables {
  locationOf(ip: string): AddressLocation | undefined
  networkOf(ip: string): AddressNetwork | undefined
}

/** Steps to find the location of an address, with names in all languages, and its network. */
const LOCATION_STEPS = 560
const NETWORK_STEPS = 60

/** Results of the tables, cached while the same address is requested. */
export class AddressLookUps {
  readonly #location = new LookUp<AddressLocation>(LOCATION_STEPS)
  readonly #network = new LookUp<AddressNetwork>(NETWORK_STEPS)

  /** Throws EvaluationError, as the other does, when the account has not enough. */
  locationOf(ip: string, tables: AddressTables, account: Account): AddressLocation | undefined {
    return this.#location.get(ip, () => tables.locationOf(ip), account)
  }

  networkOf(ip: string, tables: AddressTables, account: Account): AddressNetwork | undefined {
    return this.#network.get(ip, () => tables.networkOf(ip), account)
  }
}

class LookUp<T> {
  readonly #steps: number
  #ip: string | undefined
  #found: T | undefined

  constructor(steps: number) {
    this.#steps = steps
  }

  get(ip: string, look: () => T | undefined, account: Account): T | undefined {
    if (this.#ip === ip) return this.#found
    account.spend(this.#steps)
    this.#found = look()
    this.#ip = ip
    return this.#found
  }
}
