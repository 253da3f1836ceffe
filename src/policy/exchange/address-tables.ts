import type { Account } from '../expression/account.ts'

/** Where an address is, as far as it is known: texts are empty, and nothing is in the EU, where it is not. */
export interface AddressLocation extends RegisteredLocation {
  readonly latitude: string
  readonly longitude: string
  /** In km. */
  readonly radius: string
  readonly postalCode: string
  /** Where whoever it was given to is registered. */
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

/** The autonomous system that an address belongs to: 0 and empty where none is known. */
export interface AddressNetwork {
  readonly number: number
  readonly organization: string
}

/** Which tables there may be. */
export type AddressTable = 'geo' | 'asn'

/** What is known of addresses. Each answers undefined while there is no table that can be read. */
export interface AddressTables {
  locationOf(ip: string): AddressLocation | undefined
  networkOf(ip: string): AddressNetwork | undefined
}

/** What it takes to find where an address is, with the names of it in all languages, and whose. */
const LOCATION_STEPS = 560
const NETWORK_STEPS = 60

/** What tables say of addresses, looked up once for as long as it is the same address that is asked for. */
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
