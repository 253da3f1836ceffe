import type { AsnResponse, CityResponse } from 'maxmind'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type {
  AddressLocation,
  AddressNetwork,
  AddressTable,
  AddressTables,
  RegisteredLocation,
} from '../../policy/exchange/address-tables.ts'
import { AddressFile } from './address-file.ts'

export interface AddressOriginsOptions {
  /** Files in MaxMind's format. Unset: there is no such table. */
  readonly geoPath: string | undefined
  readonly asnPath: string | undefined
  readonly clock: Clock
  readonly log: Logger
}

/** Location and network operator of addresses, from local files. It downloads no data. */
export class AddressOrigins implements AddressTables {
  readonly #geo: AddressFile<CityResponse> | undefined
  readonly #asn: AddressFile<AsnResponse> | undefined

  constructor({ geoPath, asnPath, clock, log }: AddressOriginsOptions) {
    const open = { clock, log }
    const city = { ...open, setting: 'GATEWAY_GEO_DB', types: /City|Country|Enterprise|Insights/ }
    const asn = { ...open, setting: 'GATEWAY_ASN_DB', types: /ASN|ISP|Enterprise|Insights/ }
    this.#geo = geoPath === undefined ? undefined : new AddressFile({ ...city, path: geoPath })
    this.#asn = asnPath === undefined ? undefined : new AddressFile({ ...asn, path: asnPath })
  }

  /** Never throws: an unreadable file may become readable later. */
  async start(): Promise<void> {
    await Promise.all([this.#geo?.start(), this.#asn?.start()])
  }

  stop(): void {
    this.#geo?.stop()
    this.#asn?.stop()
  }

  /** Whether a table is configured, even if it is not readable. */
  has(table: AddressTable): boolean {
    return (table === 'geo' ? this.#geo : this.#asn) !== undefined
  }

  locationOf(ip: string): AddressLocation | undefined {
    const found = this.#geo?.get(ip)
    return found === undefined ? undefined : locationIn(found)
  }

  networkOf(ip: string): AddressNetwork | undefined {
    const found = this.#asn?.get(ip)
    if (found === undefined) return undefined
    return {
      number: found?.autonomous_system_number ?? 0,
      organization: found?.autonomous_system_organization ?? '',
    }
  }
}

const NOWHERE: RegisteredLocation = {
  city: '',
  continent: '',
  country: '',
  countryCode: '',
  isEu: false,
  metroCode: '',
  subdivision: '',
  timezone: '',
}

function locationIn(found: CityResponse | null): AddressLocation {
  const { city, continent, country, location, postal, registered_country, subdivisions } =
    found ?? {}
  return {
    city: city?.names?.en ?? '',
    continent: continent?.names?.en ?? '',
    country: country?.names?.en ?? '',
    countryCode: country?.iso_code ?? '',
    isEu: country?.is_in_european_union === true,
    latitude: numberText(location?.latitude),
    longitude: numberText(location?.longitude),
    radius: numberText(location?.accuracy_radius),
    metroCode: numberText(location?.metro_code),
    postalCode: postal?.code ?? '',
    subdivision: subdivisions?.[0]?.names?.en ?? '',
    timezone: location?.time_zone ?? '',
    registered: {
      ...NOWHERE,
      country: registered_country?.names?.en ?? '',
      countryCode: registered_country?.iso_code ?? '',
      isEu: registered_country?.is_in_european_union === true,
    },
  }
}

const numberText = (value: number | undefined) => (value === undefined ? '' : String(value))
