import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { shippedPolicyPath } from './agent/policies/shipped-policy.ts'
import { DEFAULT_TIMINGS, type ProbeTimings } from './agent/timings.ts'
import type { UpstreamDefaults } from './agent/upstreams/upstream-options.ts'
import { StartError } from './base/app-error.ts'
import type { ListenAddress, PortRange } from './base/listen-address.ts'
import type { ProxyConfig } from './base/net/trusted-proxies.ts'
import type { Secret } from './base/secret.ts'
import type { LeastClientVersions } from './gateway/agents/client-versions.ts'
import type { PostgresServer } from './gateway/cluster/postgres/postgres-session.ts'
import type { AllowEntry } from './policy/outbound/outbound-allow.ts'
import { ApiTokenSchema, type Environment, parseSettings, type Settings } from './settings.ts'

/** How much the agent may say while nothing happens. */
export interface LinkConfig {
  readonly isMetered: boolean
  /** Small responses leave at once. */
  readonly isNoDelay: boolean
  readonly heartbeat: { readonly intervalS: number; readonly toleranceS: number }
  /** Turns off heartbeats of the service. */
  readonly isHeartbeatOurs: boolean
  readonly probe: Pick<ProbeTimings, 'intervalMs' | 'retryMs' | 'echoMs'>
  readonly duplicateRetryMs: number
  readonly conflictRetryMs: number
}

/** Settings of a gateway that shares records with others. */
export interface SharedConfig {
  readonly server: PostgresServer
  readonly peerListen: ListenAddress
  /** Address for the other gateways. */
  readonly peerAddress: ListenAddress
  /** Path of the token for the first start. */
  readonly joinTokenPath: string | undefined
}

/** Typed settings of all processes, with defaults. Paths are absolute. */
export interface Config {
  readonly agent: {
    readonly authtoken: Secret | undefined
    readonly authtokenFile: string | undefined
    /** The service manager or container engine has put that file there, and decides on its mode. */
    readonly isTokenMounted: boolean
    /** Empty: the hosted service. */
    readonly serverAddrs: readonly string[]
    readonly ingressAddr: ListenAddress | undefined
    readonly caCertPath: string | undefined
    readonly domain: string | undefined
    readonly listen: ListenAddress
    /** Undefined: no page in the network. */
    readonly pageListen: ListenAddress | undefined
    readonly dataDir: string
    /** Undefined unless a service manager has made one. */
    readonly runtimeDir: string | undefined
    readonly defaultPolicyPath: string
    readonly apiToken: Secret | undefined
    /** SHA-256 of a provisioned token, in hex. */
    readonly apiTokenHash: string | undefined
    readonly forwardAllow: readonly string[]
    readonly maxTunnels: number
    /** `timeoutS` is undefined if it equals the default of our gateway. */
    readonly upstream: UpstreamDefaults
    readonly unknownActions: 'warn' | 'refuse'
    readonly drainMs: number
    readonly link: LinkConfig
  }
  readonly gateway: {
    readonly agentListen: ListenAddress
    readonly httpListen: ListenAddress
    readonly httpsListen: ListenAddress
    readonly tcpListen: PortRange | undefined
    readonly tcpIdleMs: number
    /** Undefined where no proxy in front is trusted. */
    readonly proxies: ProxyConfig | undefined
    readonly upstreamTimeoutMs: number
    readonly idleMs: number
    readonly apiListen: ListenAddress
    readonly apiHosts: readonly string[]
    readonly cnameBase: string
    readonly outboundAllow: readonly AllowEntry[]
    readonly dnsServers: readonly string[]
    readonly dnsListen: ListenAddress | undefined
    readonly acme: { readonly directoryUrl: string; readonly email: string | undefined } | undefined
    /** Bytes a second. */
    readonly leastRate: number
    readonly bufferBytes: number
    readonly drainMs: number
    readonly holdMs: number
    readonly poolAffinity: Settings['GATEWAY_POOL_AFFINITY']
    readonly leastClients: LeastClientVersions
    readonly region: string
    readonly geoPath: string | undefined
    readonly asnPath: string | undefined
    readonly dataDir: string
    /** Undefined where it is the only one. */
    readonly shared: SharedConfig | undefined
    readonly reservedDomain: string
    readonly rateLimitKeys: number
    readonly rateLimitIpv6Prefix: number
    readonly tls: { readonly certPath: string; readonly keyPath: string } | undefined
  }
  /** Opens the management API. */
  readonly apiKey: Secret | undefined
  readonly logLevel: Settings['LOG_LEVEL']
}

/** Builds the configuration out of an environment. Throws a StartError that says all that is wrong. */
export function parseConfig(environment: Environment): Config {
  return toConfig(parseSettings(environment), environment)
}

function toConfig(settings: Settings, environment: Environment): Config {
  const { GATEWAY_TLS_CERT: certPath, GATEWAY_TLS_KEY: keyPath } = settings
  if ((certPath === undefined) !== (keyPath === undefined)) {
    throw new StartError('GATEWAY_TLS_CERT and GATEWAY_TLS_KEY must be set together.')
  }
  // systemd passes absolute paths, several joined by a colon; the first is ours.
  const stateDir = environment.STATE_DIRECTORY?.split(':')[0]
  const dataDir = resolve(settings.AGENT_DATA_DIR ?? stateDir ?? 'data')
  const apiTokenFile = credential(environment, 'api-token')
  const mountedToken = credential(environment, 'svc-authtoken')
  return {
    agent: {
      authtoken: settings.SVC_AUTHTOKEN,
      authtokenFile: mountedToken ?? absolute(settings.SVC_AUTHTOKEN_FILE),
      isTokenMounted: mountedToken !== undefined,
      serverAddrs: settings.SVC_SERVER_ADDR,
      ingressAddr: settings.SVC_INGRESS_ADDR,
      caCertPath: absolute(settings.SVC_CA_CERT),
      domain: settings.AGENT_DOMAIN,
      listen: settings.AGENT_LISTEN,
      pageListen: settings.AGENT_PAGE_LISTEN,
      dataDir,
      runtimeDir: environment.RUNTIME_DIRECTORY?.split(':')[0],
      defaultPolicyPath: defaultPolicyPath(settings, environment),
      apiToken: apiTokenFile ? readApiToken(apiTokenFile) : settings.AGENT_API_TOKEN,
      apiTokenHash: settings.AGENT_API_TOKEN_SHA256,
      forwardAllow: settings.AGENT_FORWARD_ALLOW,
      maxTunnels: settings.AGENT_MAX_TUNNELS,
      upstream: {
        health: settings.AGENT_UPSTREAM_HEALTH,
        timeout: settings.AGENT_UPSTREAM_TIMEOUT,
      },
      unknownActions: settings.AGENT_UNKNOWN_ACTIONS,
      drainMs: settings.AGENT_DRAIN_SECONDS * 1_000,
      link: linkOf(settings),
    },
    gateway: {
      agentListen: settings.GATEWAY_AGENT_LISTEN,
      httpListen: settings.GATEWAY_HTTP_LISTEN,
      httpsListen: settings.GATEWAY_HTTPS_LISTEN,
      tcpListen: settings.GATEWAY_TCP_LISTEN,
      tcpIdleMs: settings.GATEWAY_TCP_IDLE_SECONDS * 1_000,
      proxies: proxiesOf(settings),
      upstreamTimeoutMs: settings.GATEWAY_UPSTREAM_TIMEOUT * 1_000,
      idleMs: settings.GATEWAY_IDLE_SECONDS * 1_000,
      apiListen: settings.GATEWAY_API_LISTEN,
      apiHosts: settings.GATEWAY_API_HOSTS,
      cnameBase: settings.GATEWAY_CNAME_BASE,
      outboundAllow: settings.GATEWAY_OUTBOUND_ALLOW,
      dnsServers: settings.GATEWAY_DNS_SERVERS,
      dnsListen: settings.GATEWAY_DNS_LISTEN,
      acme: acmeOf(settings),
      leastRate: settings.GATEWAY_LEAST_RATE * 1_000,
      bufferBytes: settings.GATEWAY_BUFFER_MB * 1_048_576,
      drainMs: settings.GATEWAY_DRAIN_SECONDS * 1_000,
      holdMs: settings.GATEWAY_HOLD_SECONDS * 1_000,
      poolAffinity: settings.GATEWAY_POOL_AFFINITY,
      region: settings.GATEWAY_REGION,
      leastClients: {
        warnBelow: settings.GATEWAY_CLIENT_WARN_BELOW,
        refuseBelow: settings.GATEWAY_CLIENT_REFUSE_BELOW,
      },
      geoPath: absolute(settings.GATEWAY_GEO_DB),
      asnPath: absolute(settings.GATEWAY_ASN_DB),
      dataDir: resolve(settings.GATEWAY_DATA_DIR ?? join(dataDir, 'gateway')),
      shared: sharedOf(settings),
      reservedDomain: settings.GATEWAY_RESERVED_DOMAIN,
      rateLimitKeys: settings.GATEWAY_RATE_LIMIT_KEYS,
      rateLimitIpv6Prefix: settings.GATEWAY_RATE_LIMIT_IPV6_PREFIX,
      tls:
        certPath && keyPath
          ? { certPath: resolve(certPath), keyPath: resolve(keyPath) }
          : undefined,
    },
    apiKey: settings.SVC_API_KEY,
    logLevel: settings.LOG_LEVEL,
  }
}

/** How long the answer to a heartbeat may take on a link that counts as one. */
const ECHO_MS = 3_000

/** Metered, a dead link is noticed within 58 s, and nothing but that is worth a byte. */
function linkOf(settings: Settings): LinkConfig {
  const { AGENT_METERED: isMetered, AGENT_HEARTBEAT_SECONDS: given } = settings
  const probeSeconds = settings.AGENT_PROBE_SECONDS ?? (isMetered ? 0 : 30)
  const intervalS = given ?? (isMetered ? 45 : 10)
  return {
    isMetered,
    isNoDelay: settings.AGENT_TCP_NODELAY,
    heartbeat: { intervalS, toleranceS: isMetered ? 13 : 15 },
    isHeartbeatOurs: isMetered || given !== undefined,
    probe: {
      intervalMs: probeSeconds === 0 ? Number.POSITIVE_INFINITY : probeSeconds * 1_000,
      echoMs: intervalS * 1_000 + ECHO_MS,
      retryMs: isMetered ? 30_000 : DEFAULT_TIMINGS.probe.retryMs,
    },
    ...retriesOf(settings),
  }
}

/** Retry times of a device while another device has its identity or names. */
function retriesOf({ AGENT_METERED: isMetered, SVC_SERVER_ADDR: addrs }: Settings) {
  // A try costs some kB.
  if (isMetered) return { duplicateRetryMs: 780_000, conflictRetryMs: 60_000 }
  const { link, tunnel } = DEFAULT_TIMINGS
  const conflictRetryMs = addrs.length > 0 ? link.duplicateRetryMs : tunnel.conflictRetryMs
  return { duplicateRetryMs: link.duplicateRetryMs, conflictRetryMs }
}

/** An authority that cannot ask the gateway would never issue anything. */
function acmeOf(settings: Settings): Config['gateway']['acme'] {
  const { GATEWAY_ACME_DIRECTORY: directoryUrl, GATEWAY_ACME_EMAIL: email } = settings
  if (directoryUrl === undefined) return undefined
  if (settings.GATEWAY_DNS_LISTEN) return { directoryUrl, email }
  throw new StartError('GATEWAY_ACME_DIRECTORY requires GATEWAY_DNS_LISTEN for ACME challenges.')
}

const OF_SEVERAL = [
  'GATEWAY_DATABASE_PASSWORD_FILE',
  'GATEWAY_PEER_LISTEN',
  'GATEWAY_PEER_ADDRESS',
  'GATEWAY_JOIN_TOKEN_FILE',
] as const
/** These ports are part of the URLs of endpoints, at every gateway. */
const PUBLIC_LISTENS = ['GATEWAY_HTTP_LISTEN', 'GATEWAY_HTTPS_LISTEN'] as const
const ANY_HOST = new Set(['0.0.0.0', '::'])

function sharedOf(settings: Settings): SharedConfig | undefined {
  const { GATEWAY_DATABASE_URL: address, GATEWAY_PEER_LISTEN: peerListen } = settings
  if (!address) {
    const idle = OF_SEVERAL.find((name) => settings[name] !== undefined)
    if (!idle) return undefined
    throw new StartError(
      `${idle} is only used in a cluster. Set GATEWAY_DATABASE_URL too, or remove it.`,
    )
  }
  if (!peerListen) {
    throw new StartError(
      'GATEWAY_DATABASE_URL requires GATEWAY_PEER_LISTEN, such as 10.0.0.1:4444, for connections from the other nodes.',
    )
  }
  const peerAddress = settings.GATEWAY_PEER_ADDRESS ?? peerListen
  if (ANY_HOST.has(peerAddress.host) || peerAddress.port === 0) {
    throw new StartError(
      'GATEWAY_PEER_ADDRESS must be set to the address of this machine, because GATEWAY_PEER_LISTEN is a wildcard address or has port 0.',
    )
  }
  const loose = PUBLIC_LISTENS.find((name) => settings[name].port === 0)
  if (loose) throw new StartError(`${loose} must have a fixed port, the same on all nodes.`)
  const server = {
    address,
    password: address.password,
    passwordPath: absolute(settings.GATEWAY_DATABASE_PASSWORD_FILE),
  }
  return {
    ...{ server, peerListen, peerAddress },
    joinTokenPath: absolute(settings.GATEWAY_JOIN_TOKEN_FILE),
  }
}

function proxiesOf(settings: Settings): ProxyConfig | undefined {
  const networks = settings.GATEWAY_TRUSTED_PROXIES
  const isRequired = settings.GATEWAY_PROXY_PROTOCOL === 'required'
  if (networks.length > 0) {
    return { networks, header: settings.GATEWAY_FORWARDED_HEADER, sendProxyProtocol: isRequired }
  }
  if (!isRequired) return undefined
  throw new StartError(
    'GATEWAY_PROXY_PROTOCOL=required requires GATEWAY_TRUSTED_PROXIES, the addresses of the load balancers.',
  )
}

const absolute = (path: string | undefined) => (path === undefined ? undefined : resolve(path))

/** Path of a systemd credential; looked at first, because no other user can read it. */
function credential(environment: Environment, name: string): string | undefined {
  const folder = environment.CREDENTIALS_DIRECTORY
  const path = folder && join(folder, name)
  return path && existsSync(path) ? path : undefined
}

function readApiToken(path: string): Secret {
  const { data, error } = ApiTokenSchema.safeParse(readFileSync(path, 'utf8').trim())
  if (data) return data
  throw new StartError(`The credential api-token ${error?.issues[0]?.message}.`)
}

function defaultPolicyPath(settings: Settings, environment: Environment): string {
  if (settings.AGENT_DEFAULT_POLICY !== undefined) return resolve(settings.AGENT_DEFAULT_POLICY)
  const folder = environment.CONFIGURATION_DIRECTORY?.split(':')[0] ?? '.'
  const own = resolve(folder, 'default-policy.json')
  return existsSync(own) ? own : shippedPolicyPath()
}
