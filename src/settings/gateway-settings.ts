import { StartError } from '../base/app-error.ts'
import { visitorHost } from '../base/net/public-names.ts'
import { databaseUrl } from './database-url.ts'
import {
  changed,
  cidrs,
  clientVersions,
  domain,
  email,
  httpsUrl,
  ipAddresses,
  list,
  listen,
  oneOf,
  outboundAllow,
  path,
  portRange,
  publicNames,
  region,
  seconds,
  secondsBetween,
  whole,
  wildcardDomain,
} from './forms.ts'
import { defaultsOf, type GroupValues, type NamedValues, setting, valuesOf } from './group.ts'
import { smtpUrl } from './smtp-url.ts'

/** Listeners for agents and visitors. */
export const LISTENERS = {
  GATEWAY_AGENT_LISTEN: setting('agentListen', listen, '127.0.0.1:4443').describe(
    'host:port for connections from agents',
  ),
  GATEWAY_PUBLIC_NAMES: setting('publicNames', publicNames, '').describe(
    'DNS names and addresses by which devices and visitors reach the gateway, such as `gateway.example.com, 203.0.113.7:14443`; the port is the port for devices, if it differs',
  ),
  GATEWAY_HTTP_LISTEN: setting('httpListen', listen, '127.0.0.1:8080').describe(
    'host:port of the public HTTP ingress',
  ),
  GATEWAY_HTTPS_LISTEN: setting('httpsListen', listen, '127.0.0.1:8443').describe(
    'host:port of the public HTTPS ingress',
  ),
  GATEWAY_TCP_LISTEN: setting('tcpListen', portRange).describe(
    'ports of TCP endpoints, such as 0.0.0.0:20000-20100; URLs use this host, or GATEWAY_CNAME_BASE for 0.0.0.0 and [::]; unset: no TCP endpoints',
  ),
}

/** Proxies and load balancers in front of the gateway. */
export const PROXIES = {
  GATEWAY_TRUSTED_PROXIES: setting('networks', cidrs, '').describe(
    'addresses or CIDRs of the proxies and load balancers in front of the gateway; only they may name the client of a request',
  ),
  GATEWAY_FORWARDED_HEADER: setting(
    'header',
    oneOf(['x-forwarded-for', 'forwarded']),
    'x-forwarded-for',
  ).describe('header by which trusted proxies name the client: x-forwarded-for or forwarded'),
  GATEWAY_PROXY_PROTOCOL: setting(
    'sendProxyProtocol',
    changed(oneOf(['off', 'required']), (word) => word === 'required'),
    'off',
  ).describe(
    'PROXY protocol, version 1 or 2, on all listeners for visitors: off or required; needs GATEWAY_TRUSTED_PROXIES',
  ),
}

/** Timeouts of connections and services. */
export const TIMEOUTS = {
  GATEWAY_TCP_IDLE_SECONDS: setting('tcpIdleMs', seconds(10, 604_800), '3600').describe(
    'seconds without data in both directions before a TCP connection is closed',
  ),
  GATEWAY_UPSTREAM_TIMEOUT: setting('answerMs', seconds(1, 3_600), '60').describe(
    'seconds until a service begins its response, before 504; `upstream.timeout` of a tunnel takes precedence',
  ),
  GATEWAY_IDLE_SECONDS: setting('idleMs', seconds(10, 604_800), '3600').describe(
    'seconds without data before a WebSocket, another upgraded connection or a response stream is closed',
  ),
}

/** Management API, and the names that its records lead to. */
export const MANAGEMENT = {
  GATEWAY_API_LISTEN: setting('apiListen', listen, '127.0.0.1:8070').describe(
    'host:port of the management API',
  ),
  GATEWAY_API_HOSTS: setting('apiHosts', list, '').describe(
    'additional host names of the management API, besides localhost and IP addresses',
  ),
  GATEWAY_CNAME_BASE: setting('cnameBase', domain).describe(
    'CNAME target of domains, and host of TCP addresses; must resolve to the gateway; default: first public name, in a cluster gateway.localhost',
  ),
}

/** Connections of the gateway to other servers, and DNS. */
export const OUTBOUND = {
  GATEWAY_OUTBOUND_ALLOW: setting('outboundAllow', outboundAllow, '').describe(
    'allowed targets of policies, webhooks and chats besides .internal: hosts, addresses or CIDRs with optional :port, and file: URLs of keys',
  ),
  GATEWAY_DNS_SERVERS: setting('dnsServers', ipAddresses, '').describe(
    'DNS servers for checking reserved domains; default: system resolvers',
  ),
  GATEWAY_DNS_LISTEN: setting('dnsListen', listen).describe(
    'host:port, UDP and TCP, of the DNS server for ACME challenges; unset: no certificates for wildcards, only on demand for single names',
  ),
}

/** Account at the ACME authority. */
export const ACME = {
  GATEWAY_ACME_DIRECTORY: setting('directoryUrl', httpsUrl).describe(
    'ACME directory URL of the authority `letsencrypt`, the same on all nodes; setting it accepts the terms of service',
  ),
  GATEWAY_ACME_EMAIL: setting('email', email).describe('contact email for the ACME account'),
}

/** Mail server for notifications. */
export const SMTP = {
  GATEWAY_SMTP_URL: setting('server', smtpUrl).describe(
    'mail server for notifications, such as smtp://user:password@mail.example.com:587 (STARTTLS) or smtps://…:465; needs GATEWAY_SMTP_FROM; unset: no mail',
  ),
  GATEWAY_SMTP_FROM: setting('from', email).describe('sender address of notifications'),
}

/** Requests under load, at a stop, and without a device. */
export const REQUESTS = {
  GATEWAY_LEAST_RATE: setting(
    'leastRate',
    changed(whole(0, 1_000_000, 'kB/s'), (kB) => kB * 1_000),
    '16',
  ).describe(
    'minimum rate in kB/s over 10 s; slower requests may be ended while others wait; 0: off',
  ),
  // The default is a quarter of the memory that the systemd unit allows.
  GATEWAY_BUFFER_MB: setting(
    'bufferBytes',
    changed(whole(8, 65_536, 'MiB'), (mib) => mib * 1_048_576),
    '192',
  ).describe(
    'MiB of unsent data for slow visitors and devices; above it the slowest are disconnected',
  ),
  GATEWAY_DRAIN_SECONDS: setting('drainMs', secondsBetween(0, 60), '10').describe(
    'seconds that open requests may take to finish when the gateway stops',
  ),
  GATEWAY_HOLD_SECONDS: setting('holdMs', secondsBetween(0, 60), '10').describe(
    'seconds that requests wait for a disconnected device; 0: no wait',
  ),
  GATEWAY_POOL_AFFINITY: setting('poolAffinity', oneOf(['none', 'client']), 'none').describe(
    'endpoint selection in a pool: `none`: least busy endpoint; `client`: same endpoint for each client address',
  ),
}

/** Clients of the gateway: the region that they show, and their versions. */
export const CLIENTS = {
  GATEWAY_REGION: setting('region', region, 'self-hosted').describe(
    'name of the location of the gateway; clients show it as their region',
  ),
  GATEWAY_CLIENT_WARN_BELOW: setting('warnBelow', clientVersions, '').describe(
    'oldest versions of clients that are not asked to update, such as `ngrok-go/1.11, ngrok-javascript/1.4`; `agent` is a client without a name',
  ),
  GATEWAY_CLIENT_REFUSE_BELOW: setting('refuseBelow', clientVersions, '').describe(
    'oldest versions of clients that may connect, in the same form',
  ),
}

/** Databases about the addresses of visitors. */
export const ORIGINS = {
  GATEWAY_GEO_DB: setting('geoPath', path).describe(
    'MaxMind database of locations for policies; unset: no location data',
  ),
  GATEWAY_ASN_DB: setting('asnPath', path).describe(
    'MaxMind database of autonomous systems for policies; unset: no AS data',
  ),
}

/** Looks of errors for visitors. */
export const PAGES = {
  GATEWAY_ERROR_PAGES: setting('errorPagesPath', path).describe(
    'folder with own error pages, such as offline.html and default.html; unset: page of the gateway',
  ),
}

export const STORAGE = {
  GATEWAY_DATA_DIR: setting('dataDir', path).describe(
    'data directory of the gateway',
    'data/gateway',
  ),
}

/** Connection to the other nodes. */
export const CLUSTER = {
  GATEWAY_DATABASE_URL: setting('address', databaseUrl).describe(
    'PostgreSQL database of a cluster, such as postgres://user@host/database; unset: single gateway',
  ),
  GATEWAY_DATABASE_PASSWORD_FILE: setting('passwordPath', path).describe(
    'file with the password for GATEWAY_DATABASE_URL, read for each connection',
  ),
  GATEWAY_PEER_LISTEN: setting('peerListen', listen).describe(
    'host:port for connections from the other nodes of the cluster',
  ),
  GATEWAY_PEER_ADDRESS: setting('peerAddress', listen).describe(
    'host:port that other nodes connect to; default: GATEWAY_PEER_LISTEN',
  ),
  GATEWAY_JOIN_TOKEN_FILE: setting('joinTokenPath', path).describe(
    'file with a join token from `gateway join-token`, for the first start or after `gateway forget`',
  ),
}

/** Records of the first start. */
export const FIRST_START = {
  GATEWAY_RESERVED_DOMAIN: setting('reservedDomain', wildcardDomain, '*.site.localhost').describe(
    'wildcard domain, reserved at the first start',
  ),
}

/** Memory and keys of rate limits. */
export const RATE_LIMITS = {
  GATEWAY_RATE_LIMIT_KEYS: setting('maxKeys', whole(1_000, 1_000_000), '100000').describe(
    'maximum number of keys per rate limit; 28 MB of memory per 100,000 active keys',
  ),
  GATEWAY_RATE_LIMIT_IPV6_PREFIX: setting('ipv6Prefix', whole(32, 128, 'bits'), '64').describe(
    'prefix length in bits by which rate limits count IPv6 visitors; 128: full address',
  ),
}

/** Own certificate of the HTTPS ingress. */
export const TLS = {
  GATEWAY_TLS_CERT: setting('certPath', path).describe(
    'PEM certificate chain of the HTTPS ingress; unset: issued by the local CA',
  ),
  GATEWAY_TLS_KEY: setting('keyPath', path).describe('PEM private key for GATEWAY_TLS_CERT'),
}

/** Groups whose values stand side by side, because several parts use them. */
const COMMON = { ...LISTENERS, ...MANAGEMENT, ...OUTBOUND, ...REQUESTS, ...PAGES, ...FIRST_START }

/** All settings of the gateway, in the order of the docs. */
export const GATEWAY = {
  ...LISTENERS,
  ...PROXIES,
  ...TIMEOUTS,
  ...MANAGEMENT,
  ...OUTBOUND,
  ...ACME,
  ...SMTP,
  ...REQUESTS,
  ...CLIENTS,
  ...ORIGINS,
  ...PAGES,
  ...STORAGE,
  ...CLUSTER,
  ...FIRST_START,
  ...RATE_LIMITS,
  ...TLS,
}

type Named = NamedValues<typeof GATEWAY>
export type GatewaySettings = ReturnType<typeof gatewaySettings>
export type TimeoutSettings = GroupValues<typeof TIMEOUTS>
export const TIMEOUT_DEFAULTS = defaultsOf(TIMEOUTS)
export const REQUEST_DEFAULTS = defaultsOf(REQUESTS)
export type ClientSettings = GroupValues<typeof CLIENTS>

/** Settings of the gateway by group. Throws a StartError if settings contradict each other. */
export function gatewaySettings(named: Named, defaultDataDir: string) {
  return {
    ...valuesOf(COMMON, named),
    ...hostsForVisitors(named),
    dataDir: named.GATEWAY_DATA_DIR ?? defaultDataDir,
    /** Undefined if no proxy is trusted. */
    proxies: proxiesOf(named),
    timeouts: valuesOf(TIMEOUTS, named),
    /** Undefined if the gateway's own CA issues all certificates. */
    acme: acmeOf(named),
    /** Undefined if the gateway sends no mail. */
    mail: mailOf(named),
    clients: valuesOf(CLIENTS, named),
    origins: valuesOf(ORIGINS, named),
    /** Undefined for a single gateway. */
    shared: sharedOf(named),
    rateLimits: valuesOf(RATE_LIMITS, named),
    /** Undefined if the gateway orders or issues the certificates. */
    tls: tlsOf(named),
  }
}

const DEFAULT_HOST = 'gateway.localhost'

/** The nodes of a cluster have the same hosts, and may have other public names. */
function hostsForVisitors(named: Named) {
  const { GATEWAY_CNAME_BASE: given, GATEWAY_PUBLIC_NAMES: names } = named
  const { name, address } = visitorHost(named.GATEWAY_DATABASE_URL ? [] : names)
  return {
    cnameBase: given ?? name ?? DEFAULT_HOST,
    /** CNAME target of all domains; undefined without a name that leads to the gateway. */
    sharedCnameTarget: given ?? name,
    /** Host of TCP addresses, if the gateway listens on all addresses. */
    tcpHost: given ?? name ?? address ?? DEFAULT_HOST,
  }
}

function proxiesOf(named: Named) {
  const proxies = valuesOf(PROXIES, named)
  if (proxies.networks.length > 0) return proxies
  if (!proxies.sendProxyProtocol) return undefined
  throw new StartError(
    'GATEWAY_PROXY_PROTOCOL=required requires GATEWAY_TRUSTED_PROXIES, the addresses of the load balancers.',
  )
}

function acmeOf(named: Named) {
  const { directoryUrl, email } = valuesOf(ACME, named)
  return directoryUrl === undefined ? undefined : { directoryUrl, email }
}

function mailOf(named: Named) {
  const { server, from } = valuesOf(SMTP, named)
  if ((server === undefined) !== (from === undefined)) {
    throw new StartError('GATEWAY_SMTP_URL and GATEWAY_SMTP_FROM must be set together.')
  }
  return server && from ? { server, from } : undefined
}

function tlsOf(named: Named) {
  const { certPath, keyPath } = valuesOf(TLS, named)
  if ((certPath === undefined) !== (keyPath === undefined)) {
    throw new StartError('GATEWAY_TLS_CERT and GATEWAY_TLS_KEY must be set together.')
  }
  return certPath && keyPath ? { certPath, keyPath } : undefined
}

/** These ports are part of the URLs of endpoints, at every gateway. */
const PUBLIC_LISTENS = ['GATEWAY_HTTP_LISTEN', 'GATEWAY_HTTPS_LISTEN'] as const
const ANY_HOST = new Set(['0.0.0.0', '::'])

function sharedOf(named: Named) {
  const { address, passwordPath, peerListen, joinTokenPath, ...given } = valuesOf(CLUSTER, named)
  if (!address) {
    const names = Object.keys(CLUSTER) as (keyof typeof CLUSTER)[]
    const unused = names.find((name) => named[name] !== undefined)
    if (!unused) return undefined
    throw new StartError(
      `${unused} is only used in a cluster. Set GATEWAY_DATABASE_URL too, or remove it.`,
    )
  }
  if (!peerListen) {
    throw new StartError(
      'GATEWAY_DATABASE_URL requires GATEWAY_PEER_LISTEN, such as 10.0.0.1:4444, for connections from the other nodes.',
    )
  }
  const peerAddress = given.peerAddress ?? peerListen
  if (peerAddress.port === 0) {
    const name = given.peerAddress ? 'GATEWAY_PEER_ADDRESS' : 'GATEWAY_PEER_LISTEN'
    throw new StartError(
      `${name} has port 0, which stands for any free port. Set a fixed port, such as 4444: the other nodes connect to it.`,
    )
  }
  if (ANY_HOST.has(peerAddress.host)) {
    throw new StartError(
      'GATEWAY_PEER_ADDRESS must be set to the address of this machine, because GATEWAY_PEER_LISTEN is a wildcard address.',
    )
  }
  const loose = PUBLIC_LISTENS.find((name) => named[name].port === 0)
  if (loose)
    throw new StartError(
      `${loose} has port 0, which stands for any free port. Set a fixed port, the same on all nodes.`,
    )
  const server = { address, password: address.password, passwordPath }
  return { server, peerListen, peerAddress, joinTokenPath }
}
