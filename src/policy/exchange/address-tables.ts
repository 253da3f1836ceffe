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
