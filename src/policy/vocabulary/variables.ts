import type { X509Certificate } from 'node:crypto'
import type {
  AddressLocation,
  AddressNetwork,
  AddressTable,
  RegisteredLocation,
} from '../exchange/address-tables.ts'
import type { HeaderList } from '../exchange/header-list.ts'
import {
  authorityOf,
  plainUrl,
  rawUrl,
  requestOf,
  responseOf,
  targetOf,
} from '../exchange/message-head.ts'
import { mediaType } from '../exchange/parsed-fields.ts'
import type {
  Connection,
  PolicyExchange,
  SessionCertificate,
  TlsSession,
} from '../exchange/policy-exchange.ts'
import { plainHost, plainValues, rawPathOf } from '../exchange/request-path.ts'
import type { UserAgent } from '../exchange/user-agent.ts'
import type { Variable } from '../expression/expression-function.ts'
import { formatTime, timestamp, type ValueInput } from '../expression/value.ts'
import { HTTP_PHASES, type Phase, RESPONSE_PHASE } from '../phase.ts'
import { queryParameters, requestCookies, responseCookies } from './requests.ts'

/** A variable that needs a table of addresses. */
interface AddressVariable extends Variable<PolicyExchange> {
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

/** Fields of old policies, from before there were two addresses. */
const CLIENT_FIELDS = ['city', 'country', 'country_code', 'subdivision', ...Object.keys(POINT)]

/** Facts of the tables about both addresses of a connection. */
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

/** Setting of the gateway for each table. */
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

interface CertificateVariable {
  readonly type: string
  /** Undefined when the certificate does not tell. */
  readonly read: (certificate: SessionCertificate) => ValueInput | undefined
}

const NAME_LISTS: Readonly<Record<string, string>> = {
  country: 'C',
  locality: 'L',
  organization: 'O',
  organizational_unit: 'OU',
  postal_code: 'postalCode',
  province: 'ST',
  street_address: 'street',
}

const SAN_LISTS: Readonly<Record<string, string>> = {
  dns_names: 'DNS',
  email_addresses: 'email',
  ip_addresses: 'IP Address',
  uris: 'URI',
}

/** Fields of a certificate under `conn.tls.client` and `conn.tls.server`. */
const CERTIFICATE_VARIABLES: Readonly<Record<string, CertificateVariable>> = {
  signature_algorithm: { type: 'string', read: ({ signatureAlgorithm }) => signatureAlgorithm },
  extensions: { type: 'list(extension)', read: ({ extensions }) => extensions },
  serial_number: textFrom(({ serialNumber }) => serialNumber.toLowerCase()),
  ...distinguishedName('subject'),
  ...distinguishedName('issuer'),
  san: textFrom(({ subjectAltName }) => subjectAltName ?? ''),
  ...Object.fromEntries(
    Object.entries(SAN_LISTS).map(([name, kind]) => [
      `san.${name}`,
      list(({ subjectAltName }) => alternativeNames(subjectAltName ?? '', kind)),
    ]),
  ),
  'validity.not_before': time(({ validFrom }) => validFrom),
  'validity.not_after': time(({ validTo }) => validTo),
}

function textFrom(read: (certificate: X509Certificate) => string): CertificateVariable {
  return { type: 'string', read: ({ x509 }) => read(x509) }
}

function list(read: (certificate: X509Certificate) => string[]): CertificateVariable {
  return { type: 'list(string)', read: ({ x509 }) => read(x509) }
}

function time(read: (certificate: X509Certificate) => string): CertificateVariable {
  return { type: 'timestamp', read: ({ x509 }) => timestamp(Date.parse(read(x509))) }
}

function distinguishedName(part: 'subject' | 'issuer'): Record<string, CertificateVariable> {
  const field = (kind: string) => (certificate: X509Certificate) =>
    linesOf(certificate[part])
      .filter((line) => line.startsWith(`${kind}=`))
      .map((line) => line.slice(kind.length + 1).replace(/\\(.)/g, '$1'))
  return {
    // RFC 2253 2.1 writes the last part of the sequence first.
    [part]: textFrom((certificate) => linesOf(certificate[part]).reverse().join(',')),
    [`${part}.common_name`]: textFrom((certificate) => field('CN')(certificate).at(-1) ?? ''),
    ...Object.fromEntries(
      Object.entries(NAME_LISTS).map(([name, kind]) => [`${part}.${name}`, list(field(kind))]),
    ),
  }
}

/** Node writes a name as one `KIND=value` per line, escaped as in RFC 2253. */
function linesOf(name: string | undefined): string[] {
  return name === undefined || name === '' ? [] : name.split('\n')
}

/** Node writes `DNS:a.example, URI:"with a comma"`. Quoted values are JSON strings. */
function alternativeNames(names: string, kind: string): string[] {
  const found = names.matchAll(/(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,]*)/g)
  return Array.from(found)
    .filter((match) => match[1] === kind)
    .map(([, , value = '']) => (value.startsWith('"') ? JSON.parse(value) : value))
}

type ExchangeVariable = Variable<PolicyExchange>

type Read = (exchange: PolicyExchange) => ValueInput | undefined

const anytime = (type: string, read: Read): ExchangeVariable => ({ type, read })

const NO_REGION = 'gateways have no regions'
const NO_RESUMPTION = 'gateways do not record whether a TLS session was resumed'
const NO_CLUSTER = 'no connection comes from a Kubernetes cluster'
const NO_LISTS = 'gateways have no lists of addresses. Use restrict-ips or inCidrRanges()'
const NO_TRAILERS = 'trailers arrive after the rules have run'
const NO_PASSWORD = 'requests have no user and password in their URL. Use basic-auth'

/** A variable that is known to the hosted service, and always empty here. */
const without = (noData: string, variable: ExchangeVariable): ExchangeVariable => ({
  ...variable,
  noData,
})

const onTls = (
  type: string,
  read: (tls: TlsSession) => ValueInput | undefined,
): ExchangeVariable => ({
  type,
  read: ({ connection }) => connection.tls && read(connection.tls),
})

const inRequest = (type: string, read: Read): ExchangeVariable => ({
  type,
  read,
  phases: HTTP_PHASES,
})

const inResponse = (type: string, read: Read): ExchangeVariable => ({
  type,
  read,
  phases: RESPONSE_PHASE,
})

const hostOf: Read = (exchange) => requestOf(exchange).host
const requestHeaders: HeadersOf = (exchange) => requestOf(exchange).headers
const responseHeaders: HeadersOf = (exchange) => responseOf(exchange).headers
type HeadersOf = (exchange: PolicyExchange) => HeaderList

/** For connections from a Kubernetes cluster, which do not exist here. */
const NO_POD = { name: '', namespace: '', annotations: {}, error_code: '', error_message: '' }

const CONNECTION: Record<string, ExchangeVariable> = {
  'conn.client_ip': anytime('string', ({ countedIp, connection }) => {
    return countedIp ?? connection.clientIp
  }),
  'conn.client_port': anytime('int', ({ connection }) => BigInt(connection.clientPort)),
  'conn.server_ip': anytime('string', ({ connection }) => connection.serverIp),
  'conn.server_port': anytime('int', ({ connection }) => BigInt(connection.serverPort)),
  'conn.server_region': without(
    NO_REGION,
    anytime('string', () => ''),
  ),
  'conn.ts.start': anytime('timestamp', ({ connection }) => timestamp(connection.startedAt)),
  'conn.bytes_in': anytime('int', ({ connection }) => BigInt(connection.bytesIn)),
  'conn.bytes_out': anytime('int', ({ connection }) => BigInt(connection.bytesOut)),

  'conn.tls.version': onTls('string', ({ version }) => version.replace(/^TLSv/, '')),
  'conn.tls.cipher_suite': onTls('string', ({ cipherSuite }) => cipherSuite),
  'conn.tls.sni': anytime('string', ({ connection: { tls, serverName } }) => {
    const name = tls?.serverName ?? serverName
    return name === undefined ? undefined : plainHost(name)
  }),
  'conn.tls.negotiated_alpn': onTls('string', ({ alpn }) => alpn),
  'conn.tls.session_resumed': without(
    NO_RESUMPTION,
    onTls('bool', () => false),
  ),
  ...certificate('conn.tls.client', ({ clientCertificate }) => clientCertificate),
  'conn.tls.client.pem': onTls('string', ({ clientCertificate }) => {
    return clientCertificate?.x509.toString()
  }),
  ...certificate('conn.tls.server', ({ serverCertificate }) => serverCertificate),

  ...ADDRESS_VARIABLES,
  ...unknownOrigin('conn.client_ip'),
  ...unknownOrigin('conn.server_ip'),
  'conn.k8s.pod.id': without(
    NO_CLUSTER,
    anytime('string', () => ''),
  ),
  'conn.k8s.pod.metadata': without(
    NO_CLUSTER,
    anytime('map(dyn)', () => NO_POD),
  ),
  ...Object.fromEntries(
    Object.entries(NO_POD).map(([name, value]) => [
      `conn.k8s.pod.metadata.${name}`,
      without(
        NO_CLUSTER,
        anytime(typeof value === 'string' ? 'string' : 'map(string)', () => value),
      ),
    ]),
  ),
}

const ENDPOINT: Record<string, ExchangeVariable> = {
  'endpoint.id': anytime('string', ({ endpoint }) => endpoint.id),
  'endpoint.url': anytime('string', ({ endpoint }) => endpoint.url),
  'endpoint.host': anytime('string', ({ endpoint }) => endpoint.host),
  'endpoint.port': anytime('int', ({ endpoint }) => BigInt(endpoint.port)),
  'endpoint.addr': anytime('string', ({ endpoint: { host, port } }) => `${host}:${port}`),
  'endpoint.protocol': anytime('string', ({ endpoint }) => endpoint.protocol),
}

const ofUserAgent = (type: string, read: (agent: UserAgent) => ValueInput): ExchangeVariable =>
  inRequest(type, (exchange) =>
    read(
      exchange.parsed.userAgent(requestHeaders(exchange).get('user-agent') ?? '', exchange.account),
    ),
  )

const USER_AGENT: Record<string, ExchangeVariable> = {
  'req.user_agent.name': ofUserAgent('string', ({ name }) => name),
  'req.user_agent.version': ofUserAgent('string', ({ version }) => version),
  'req.user_agent.os': ofUserAgent('string', ({ os }) => os),
  'req.user_agent.os_version': ofUserAgent('string', ({ osVersion }) => osVersion),
  'req.user_agent.device': ofUserAgent('string', ({ device }) => device),
  'req.user_agent.url': ofUserAgent('string', ({ url }) => url),
  'req.user_agent.is_mobile': ofUserAgent('bool', ({ platform }) => platform === 'mobile'),
  'req.user_agent.is_tablet': ofUserAgent('bool', ({ platform }) => platform === 'tablet'),
  'req.user_agent.is_desktop': ofUserAgent('bool', ({ platform }) => platform === 'desktop'),
  'req.user_agent.is_bot': ofUserAgent('bool', ({ isBot }) => isBot),
}

const REQUEST: Record<string, ExchangeVariable> = {
  'req.method': inRequest('string', (exchange) => requestOf(exchange).method),
  'req.host': inRequest('string', hostOf),
  'req.version': inRequest('string', (exchange) => `HTTP/${requestOf(exchange).httpVersion}`),
  'req.user_agent': header('user-agent', HTTP_PHASES, requestHeaders),
  ...USER_AGENT,
  ...headFields('req', HTTP_PHASES, requestHeaders),
  'req.cookies': inRequest('map(list(cookie))', requestCookies),
  'req.ts.header_received': inRequest('timestamp', (exchange) =>
    timestamp(requestOf(exchange).receivedAt),
  ),
  'req.ts.body_received': inRequest('timestamp', (exchange) => {
    const { bodyReceivedAt } = requestOf(exchange)
    return bodyReceivedAt === undefined ? undefined : timestamp(bodyReceivedAt)
  }),
  'req.url': inRequest('string', plainUrl),
  'req.url.raw': inRequest('string', (exchange) => rawUrl(requestOf(exchange))),
  'req.url.authority': inRequest('string', (exchange) => authorityOf(requestOf(exchange))),
  'req.url.host': inRequest('string', hostOf),
  'req.url.port': inRequest('int', (exchange) => {
    const { headers, host } = requestOf(exchange)
    const port = /:(\d+)$/.exec(headers.get('host') ?? host)?.[1]
    return port === undefined ? undefined : BigInt(port)
  }),
  'req.url.path': inRequest('string', (exchange) => targetOf(exchange).path),
  'req.url.raw_path': inRequest('string', (exchange) => rawPathOf(requestOf(exchange).target)),
  'req.url.query': inRequest('string', (exchange) => targetOf(exchange).query),
  'req.url.query_params': inRequest('map(list(string))', queryParameters),
  'req.url.scheme': inRequest('string', (exchange) => requestOf(exchange).scheme),
  'req.url.uri': inRequest('string', (exchange) => targetOf(exchange).text),
  'req.url.user_password': without(
    NO_PASSWORD,
    inRequest('string', () => ''),
  ),
}

const RESPONSE: Record<string, ExchangeVariable> = {
  'res.status_code': inResponse('int', (exchange) => BigInt(responseOf(exchange).status)),
  ...headFields('res', RESPONSE_PHASE, responseHeaders),
  'res.cookies': inResponse('map(list(set_cookie))', responseCookies),
}

/** Steps to format the time. */
const NOW_STEPS = 10

/** Every name but the results of actions. */
export const VARIABLES: ReadonlyMap<string, ExchangeVariable> = new Map(
  Object.entries({
    ...CONNECTION,
    ...ENDPOINT,
    ...REQUEST,
    ...RESPONSE,
    vars: { type: 'map(dyn)', read: ({ vars }) => vars as ReadonlyMap<string, ValueInput> },
    'time.now': {
      type: 'string',
      read: (_, evaluation) => {
        evaluation.spend(NOW_STEPS)
        return formatTime(evaluation.clock.now())
      },
    },
  } satisfies Record<string, ExchangeVariable>),
)

/** Results of actions that the hosted service has, below `actions.ngrok`, and why there are none here. */
export const NO_RESULTS: Readonly<Record<string, string>> = {
  'response_body_find_replace.replacements': 'the body is replaced after all rules have run',
  'terminate_tls.warnings': 'a gateway refuses doubtful settings of TLS and has no warnings',
}

/** Names that the hosted service knows and a gateway without its data cannot, by their start. */
export const UNAVAILABLE_VARIABLES: Readonly<Record<string, string>> = {
  'conn.tls.ja4_fingerprint': 'gateways do not compute it',
}

/** Facts of address intelligence services: nothing is listed here. */
function unknownOrigin(address: string): Record<string, ExchangeVariable> {
  return {
    [`${address}.categories`]: without(
      NO_LISTS,
      anytime('list(string)', () => []),
    ),
    [`${address}.is_on_blocklist`]: without(
      NO_LISTS,
      anytime('bool', () => false),
    ),
    [`${address}.is_tor_node`]: without(
      NO_LISTS,
      anytime('bool', () => false),
    ),
  }
}

function header(name: string, phases: readonly Phase[], headersOf: HeadersOf): ExchangeVariable {
  return { type: 'string', phases, read: (exchange) => headersOf(exchange).get(name) ?? '' }
}

/** The names that requests and responses have in common. */
function headFields(
  root: 'req' | 'res',
  phases: readonly Phase[],
  headersOf: HeadersOf,
): Record<string, ExchangeVariable> {
  const within = (
    type: string,
    read: (headers: HeaderList, exchange: PolicyExchange) => ValueInput | undefined,
  ) => ({
    type,
    phases,
    read: (exchange: PolicyExchange) => read(headersOf(exchange), exchange),
  })
  return {
    [`${root}.headers`]: within('map(list(string))', (headers, { account }) => {
      account.spend(FIELD_STEPS * headers.size)
      const map = byLowerName(headers)
      return root === 'req' ? withPlainHosts(map) : map
    }),
    [`${root}.trailers`]: without(
      NO_TRAILERS,
      within('map(list(string))', () => new Map()),
    ),
    [`${root}.location`]: header('location', phases, headersOf),
    [`${root}.content_length`]: within('int', (headers) => {
      const length = headers.get('content-length')
      return length !== undefined && /^\d{1,15}$/.test(length) ? BigInt(length) : undefined
    }),
    [`${root}.content_encoding`]: within('list(string)', (headers, { parsed, account }) =>
      parsed.codings(headers.all('content-encoding'), account),
    ),
    [`${root}.content_type`]: within('string', (headers) =>
      mediaType(headers.get('content-type') ?? ''),
    ),
    [`${root}.content_type.raw`]: header('content-type', phases, headersOf),
    [`${root}.content_type.parameters`]: within('map(string)', (headers, { parsed, account }) =>
      parsed.mediaParameters(headers.get('content-type') ?? '', account),
    ),
  }
}

/** Steps to read a field into a map. */
const FIELD_STEPS = 4

function withPlainHosts(map: Map<string, string[]>): Map<string, string[]> {
  for (const [name, values] of map) map.set(name, plainValues(name, values))
  return map
}

function byLowerName(headers: HeaderList): Map<string, string[]> {
  const map = new Map<string, string[]>()
  for (const [name, value] of headers) {
    const key = name.toLowerCase()
    const values = map.get(key)
    if (values) values.push(value)
    else map.set(key, [value])
  }
  return map
}

function certificate(
  root: string,
  pick: (tls: TlsSession) => SessionCertificate | undefined,
): Record<string, ExchangeVariable> {
  const variables: Record<string, ExchangeVariable> = {}
  for (const [name, { type, read }] of Object.entries(CERTIFICATE_VARIABLES)) {
    variables[`${root}.${name}`] = onTls(type, (tls) => {
      const found = pick(tls)
      return found && read(found)
    })
  }
  return variables
}
