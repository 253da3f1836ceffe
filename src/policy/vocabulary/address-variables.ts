import type {
  AddressLocation,
  AddressNetwork,
  AddressTable,
  RegisteredLocation,
} from '../exchange/address-tables.ts'
import type { Connection, PolicyExchange } from '../exchange/policy-exchange.ts'
import type { ValueInput } from '../expression/value.ts'
import type { Variable } from '../expression/variable.ts'

/** One that can be read where there is a table. */
export interface AddressVariable extends Variable<PolicyExchange> {
  readonly table: AddressTable
}

type Field<From> = readonly [type: string, read: (from: From) => ValueInput]

const text = <From>(read: (from: From) => string): Field<From> => ['string', read]

const REGISTERED: Readonly<Record<string, Field<RegisteredLocation>>> = {
  city: text(({ city }) => city),
  continent: text(({ continent }) => continent),
  country: text(({ country }) => country),
  country_code: text(({ countryCode }) => countryCode),
  is_eu: ['bool', ({ isEu }) => isEu],
  metro_code: text(({ metroCode }) => metroCode),
  subdivision: text(({ subdivision }) => subdivision),
  timezone: text(({ timezone }) => timezone),
}

const POINT: Readonly<Record<string, Field<AddressLocation>>> = {
  latitude: text(({ latitude }) => latitude),
  longitude: text(({ longitude }) => longitude),
  radius: text(({ radius }) => radius),
}

const LOCATION: Readonly<Record<string, Field<AddressLocation>>> = {
  ...REGISTERED,
  ...POINT,
  postal_code: text(({ postalCode }) => postalCode),
}

const NETWORK: Readonly<Record<string, Field<AddressNetwork>>> = {
  number: ['int', ({ number }) => BigInt(number)],
  organization: text(({ organization }) => organization),
}

/** Of connections of before there was more than one address. */
const CLIENT_FIELDS = ['city', 'country', 'country_code', 'subdivision', ...Object.keys(POINT)]

/** What tables know of the two addresses of a connection. */
export const ADDRESS_VARIABLES: Readonly<Record<string, AddressVariable>> = {
  ...Object.fromEntries(
    CLIENT_FIELDS.map((name) => [
      `conn.geo.${name}`,
      located(({ clientIp }) => clientIp, LOCATION[name] as Field<AddressLocation>),
    ]),
  ),
  ...ofAddress('conn.client_ip', ({ clientIp }) => clientIp),
  ...ofAddress('conn.server_ip', ({ serverIp }) => serverIp),
}

/** What is to be set at the gateway so that there is a table. */
export const TABLE_SETTINGS: Readonly<Record<AddressTable, string>> = {
  geo: 'GATEWAY_GEO_DB',
  asn: 'GATEWAY_ASN_DB',
}

type AddressOf = (connection: Connection) => string

function ofAddress(root: string, addressOf: AddressOf): Record<string, AddressVariable> {
  const variables: Record<string, AddressVariable> = {}
  for (const [name, field] of Object.entries(LOCATION)) {
    variables[`${root}.geo.location.${name}`] = located(addressOf, field)
  }
  for (const [name, [type, read]] of Object.entries(REGISTERED)) {
    const field: Field<AddressLocation> = [type, ({ registered }) => read(registered)]
    variables[`${root}.geo.registered_location.${name}`] = located(addressOf, field)
  }
  for (const [name, [type, read]] of Object.entries(NETWORK)) {
    variables[`${root}.as.${name}`] = {
      type,
      table: 'asn',
      read: ({ connection, lookUps, account }) => {
        const { tables } = connection
        const network = tables && lookUps.networkOf(addressOf(connection), tables, account)
        return network && read(network)
      },
    }
  }
  return variables
}

function located(addressOf: AddressOf, [type, read]: Field<AddressLocation>): AddressVariable {
  return {
    type,
    table: 'geo',
    read: ({ connection, lookUps, account }) => {
      const { tables } = connection
      const location = tables && lookUps.locationOf(addressOf(connection), tables, account)
      return location && read(location)
    },
  }
}
