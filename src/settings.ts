import { isIP } from 'node:net'
import * as z from 'zod'
import {
  DEFAULT_UPSTREAM,
  HEALTH_FORM,
  isUpstreamHealth,
  TIMEOUT_RANGE,
} from './agent/upstreams/upstream-options.ts'
import { StartError } from './base/app-error.ts'
import {
  IPV6_SERVER,
  isIPv6Address,
  isLoopback,
  type ListenAddress,
  type PortRange,
  parseListenAddress,
  parsePortRange,
} from './base/listen-address.ts'
import { nearest } from './base/nearest.ts'
import { type Cidr, parseCidr } from './base/net/network.ts'
import { Secret } from './base/secret.ts'
import { type ClientVersion, parseClientVersion } from './gateway/agents/client-versions.ts'
import { DatabaseUrlSchema } from './gateway/cluster/postgres/database-url.ts'
import { type AllowEntry, parseAllowEntry } from './policy/outbound/outbound-allow.ts'

/** Settings have long names, so that four letters may be wrong and one still knows which is meant. */
const MAX_WRONG_LETTERS = 4
const PREFIXES = /^(AGENT|SVC|GATEWAY)_/
const TUNNEL_LIMIT = 'must be a whole number from 1 to 10000'
const RATE_LIMIT_KEYS = 'must be a whole number from 1000 to 1000000'
const RATE_LIMIT_IPV6_PREFIX = 'must be a whole number of bits from 32 to 128'
const LEAST_RATE = 'must be a whole number of kB/s from 0 to 1000000'
const DRAIN_TIME = 'must be between 0 and 60 seconds'
const TCP_RANGE = 'must be host:first-last with at most 10000 ports, such as 0.0.0.0:20000-20100'
const TCP_IDLE = 'must be a whole number of seconds from 10 to 604800'
const UPSTREAM_TIMEOUT = 'must be a whole number of seconds from 1 to 3600'
const HOLD_TIME = 'must be between 0 and 60 seconds'
const BUFFER_LIMIT = 'must be a whole number of MiB from 8 to 65536'
const DRAIN = 'must be a whole number of seconds from 0 to 60'
const HEARTBEAT = 'must be a whole number of seconds from 5 to 300'
const PROBE = 'must be a whole number of seconds from 10 to 86400, or 0'
const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

const listen = z.string().transform((text, context): ListenAddress => {
  const address = parseListenAddress(text)
  if (address) return address
  context.addIssue({ code: 'custom', message: 'must be host:port, such as 127.0.0.1:7040' })
  return z.NEVER
})

/** Each additional address costs at most one connection. More addresses add no safety. */
const MAX_SERVERS = 5
const SERVERS = `must be host:port, or up to ${MAX_SERVERS} addresses separated by commas`
const servers = z
  .string()
  .transform((text) => text.split(',').map((address) => address.trim()))
  .refine((all) => all.length <= MAX_SERVERS && all.every(isServer), SERVERS)
  .refine((all) => !all.some(isIPv6Address), IPV6_SERVER)
const isServer = (text: string) => (parseListenAddress(text)?.port ?? 0) > 0

const domain = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(
    (text) =>
      text.length <= 253 && /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]+$/.test(text),
    'must be a domain name, such as agent.site.example.com',
  )

const wildcardDomain = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(
    (text) => text.startsWith('*.') && domain.safeParse(text.slice(2)).success,
    'must be a wildcard domain, such as *.site.example.com',
  )

const secret = z.string().transform((text) => new Secret(text))
/** Characters of `Authorization: Bearer …` (RFC 6750 section 2.1). */
export const ApiTokenSchema = secret
  .refine((token) => token.reveal().length >= 20, 'must have at least 20 characters')
  .refine(
    (token) => /^[\w.~+/-]+=*$/.test(token.reveal()),
    'must contain only letters, digits and - . _ ~ + / (bearer token characters)',
  )
const httpsUrl = z.string().refine((text) => {
  if (!URL.canParse(text)) return false
  const { protocol, hostname } = new URL(text)
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname))
}, 'must be an https URL, such as https://acme.example.com/directory')
const list = z.string().transform((text) => text.split(/[\s,]+/).filter((item) => item !== ''))
const outboundAllow = list.transform((texts, context): AllowEntry[] =>
  texts.flatMap((text) => {
    const entry = parseAllowEntry(text)
    if (!('problem' in entry)) return entry
    context.addIssue({ code: 'custom', message: `cannot list ${text}: ${entry.problem}` })
    return []
  }),
)

const clientVersions = list.transform((texts, context): ClientVersion[] =>
  texts.flatMap((text) => {
    const entry = parseClientVersion(text)
    if (entry) return entry
    const message = `must be name/version, such as ngrok-go/1.11, separated by commas; ${text} is not`
    context.addIssue({ code: 'custom', message })
    return []
  }),
)

const cidrs = list.transform((texts, context): Cidr[] =>
  texts.flatMap((text) => {
    const cidr = parseCidr(text)
    if (cidr) return cidr
    context.addIssue({
      code: 'custom',
      message: `must be addresses or CIDRs, such as 10.0.0.0/8 or 2001:db8::7, separated by commas`,
    })
    return []
  }),
)

/** Every setting with its meaning. `describe` texts are the table in docs/reference/settings.md and `help settings`. */
export const SettingsSchema = z.strictObject({
  SVC_AUTHTOKEN: secret.optional().describe('authtoken; prefer SVC_AUTHTOKEN_FILE'),
  SVC_AUTHTOKEN_FILE: z
    .string()
    .optional()
    .describe('file with the authtoken; changes are applied at once'),
  SVC_SERVER_ADDR: servers
    .default([])
    .describe(
      'host:port of the gateway, or several, comma-separated, for a standby session; unset: the hosted service',
    ),
  SVC_INGRESS_ADDR: listen
    .optional()
    .describe('host:port of the ingress, for checks of the public domain; unset: from DNS'),
  SVC_CA_CERT: z.string().optional().describe('PEM file with the CA certificate of the gateway'),
  SVC_API_KEY: secret.optional().describe('management API key for `provision`; prefer a file'),
  AGENT_DOMAIN: domain
    .optional()
    .describe(
      'public domain of the agent API; unset: local only (with `up`: agent.site.localhost)',
    ),
  AGENT_LISTEN: listen
    .default({ host: '127.0.0.1', port: 7040 })
    .describe('host:port of the agent API on the device'),
  AGENT_PAGE_LISTEN: listen
    .optional()
    .describe('host:port of the device page for the local network; unset: only at AGENT_LISTEN'),
  AGENT_DATA_DIR: z
    .string()
    .optional()
    .describe('data directory of the agent (under systemd: StateDirectory)'),
  AGENT_DEFAULT_POLICY: z
    .string()
    .optional()
    .describe(
      'policy file for tunnels without a policy; default: default-policy.json, or the built-in policy if it is missing',
    ),
  AGENT_API_TOKEN: ApiTokenSchema.optional().describe(
    'owner token of the agent API; unset: created at first start in data/api-token',
  ),
  AGENT_API_TOKEN_SHA256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 hash in hex, as written by provision')
    .optional()
    .describe(
      'SHA-256 hash of an API token with scope `write`, written by `provision`; imported once as `provisioned`',
    ),
  AGENT_FORWARD_ALLOW: list
    .default([])
    .describe(
      'allowed upstreams besides loopback: hosts or CIDRs with optional :port, and unix:/paths',
    ),
  AGENT_MAX_TUNNELS: z.coerce
    .number({ error: TUNNEL_LIMIT })
    .int(TUNNEL_LIMIT)
    .min(1, TUNNEL_LIMIT)
    .max(10_000, TUNNEL_LIMIT)
    .default(1_000)
    .describe('maximum number of tunnels on the device'),
  AGENT_DRAIN_SECONDS: z.coerce
    .number({ error: DRAIN })
    .int(DRAIN)
    .min(0, DRAIN)
    .max(60, DRAIN)
    .default(10)
    .describe('seconds that open requests may take to finish when the agent stops'),
  AGENT_METERED: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .default('false')
    .transform((text) => text === 'true')
    .describe('reduce idle traffic to under 30 MB a month, for metered links such as 4G'),
  AGENT_TCP_NODELAY: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .default('true')
    .transform((text) => text === 'true')
    .describe(
      'send small responses without waiting for a round trip (TCP_NODELAY on the connection to the service; Linux only)',
    ),
  AGENT_HEARTBEAT_SECONDS: z.coerce
    .number({ error: HEARTBEAT })
    .int(HEARTBEAT)
    .min(5, HEARTBEAT)
    .max(300, HEARTBEAT)
    .optional()
    .describe(
      'seconds between heartbeats; the link is closed 15 s after a missed answer (metered: 13 s)',
    ),
  AGENT_PROBE_SECONDS: z.coerce
    .number({ error: PROBE })
    .int(PROBE)
    .refine((seconds) => seconds === 0 || (seconds >= 10 && seconds <= 86_400), PROBE)
    .optional()
    .describe('seconds between checks of the public domain; 0: only after a change'),
  AGENT_UPSTREAM_HEALTH: z
    .string()
    .refine(isUpstreamHealth, HEALTH_FORM)
    .default(DEFAULT_UPSTREAM.health)
    .describe(
      'health check of upstreams: off, tcp (open a connection), or a path that must return a status below 500',
    ),
  AGENT_UPSTREAM_TIMEOUT: z.coerce
    .number({ error: TIMEOUT_RANGE })
    .int(TIMEOUT_RANGE)
    .min(1, TIMEOUT_RANGE)
    .max(3_600, TIMEOUT_RANGE)
    .default(DEFAULT_UPSTREAM.timeout)
    .describe('seconds without data from an upstream before the gateway answers 504'),
  AGENT_UNKNOWN_ACTIONS: z
    .enum(['warn', 'refuse'], { error: 'must be warn or refuse' })
    .default('warn')
    .describe(
      'treatment of policy actions that only the hosted service may support: warn or refuse; a gateway always refuses them',
    ),
  GATEWAY_AGENT_LISTEN: listen
    .default({ host: '127.0.0.1', port: 4443 })
    .describe('host:port for connections from agents'),
  GATEWAY_HTTP_LISTEN: listen
    .default({ host: '127.0.0.1', port: 8080 })
    .describe('host:port of the public HTTP ingress'),
  GATEWAY_HTTPS_LISTEN: listen
    .default({ host: '127.0.0.1', port: 8443 })
    .describe('host:port of the public HTTPS ingress'),
  GATEWAY_TCP_LISTEN: z
    .string()
    .transform((text, context): PortRange => {
      const range = parsePortRange(text)
      if (range) return range
      context.addIssue({ code: 'custom', message: TCP_RANGE })
      return z.NEVER
    })
    .optional()
    .describe(
      'ports of TCP endpoints, such as 0.0.0.0:20000-20100; URLs use this host, or GATEWAY_CNAME_BASE for 0.0.0.0 and [::]; unset: no TCP endpoints',
    ),
  GATEWAY_TRUSTED_PROXIES: cidrs
    .default([])
    .describe(
      'addresses or CIDRs of the proxies and load balancers in front of the gateway; only they may name the client of a request',
    ),
  GATEWAY_FORWARDED_HEADER: z
    .enum(['x-forwarded-for', 'forwarded'], { error: 'must be x-forwarded-for or forwarded' })
    .default('x-forwarded-for')
    .describe('header by which trusted proxies name the client: x-forwarded-for or forwarded'),
  GATEWAY_PROXY_PROTOCOL: z
    .enum(['off', 'required'], { error: 'must be off or required' })
    .default('off')
    .describe(
      'PROXY protocol, version 1 or 2, on all listeners for visitors: off or required; needs GATEWAY_TRUSTED_PROXIES',
    ),
  GATEWAY_TCP_IDLE_SECONDS: z.coerce
    .number({ error: TCP_IDLE })
    .int(TCP_IDLE)
    .min(10, TCP_IDLE)
    .max(604_800, TCP_IDLE)
    .default(3_600)
    .describe('seconds without data in both directions before a TCP connection is closed'),
  GATEWAY_UPSTREAM_TIMEOUT: z.coerce
    .number({ error: UPSTREAM_TIMEOUT })
    .int(UPSTREAM_TIMEOUT)
    .min(1, UPSTREAM_TIMEOUT)
    .max(3_600, UPSTREAM_TIMEOUT)
    .default(60)
    .describe(
      'seconds until a service begins its response, before 504; `upstream.timeout` of a tunnel takes precedence',
    ),
  GATEWAY_IDLE_SECONDS: z.coerce
    .number({ error: TCP_IDLE })
    .int(TCP_IDLE)
    .min(10, TCP_IDLE)
    .max(604_800, TCP_IDLE)
    .default(3_600)
    .describe(
      'seconds without data before a WebSocket, another upgraded connection or a response stream is closed',
    ),
  GATEWAY_API_LISTEN: listen
    .default({ host: '127.0.0.1', port: 8070 })
    .describe('host:port of the management API'),
  GATEWAY_API_HOSTS: list
    .default([])
    .describe('additional host names of the management API, besides localhost and IP addresses'),
  GATEWAY_CNAME_BASE: domain
    .default('gateway.localhost')
    .describe(
      'parent domain of the CNAME targets of reserved domains; must resolve to the gateway',
    ),
  GATEWAY_OUTBOUND_ALLOW: outboundAllow
    .default([])
    .describe(
      'allowed targets of policies and webhooks besides .internal: hosts, addresses or CIDRs with optional :port, and file: URLs of keys',
    ),
  GATEWAY_DNS_SERVERS: list
    .refine(
      (servers) =>
        servers.every((server) => isIP(parseListenAddress(server)?.host ?? server) !== 0),
      'must be IP addresses with an optional :port',
    )
    .default([])
    .describe('DNS servers for checking reserved domains; default: system resolvers'),
  GATEWAY_DNS_LISTEN: listen
    .optional()
    .describe('host:port, UDP and TCP, of the DNS server for ACME challenges'),
  GATEWAY_ACME_DIRECTORY: httpsUrl
    .optional()
    .describe(
      'ACME directory URL of the authority `letsencrypt`, the same on all nodes; setting it accepts the terms of service',
    ),
  GATEWAY_ACME_EMAIL: z
    .email('must be an email address')
    .optional()
    .describe('contact email for the ACME account'),
  GATEWAY_LEAST_RATE: z.coerce
    .number({ error: LEAST_RATE })
    .int(LEAST_RATE)
    .min(0, LEAST_RATE)
    .max(1_000_000, LEAST_RATE)
    .default(16)
    .describe(
      'minimum rate in kB/s over 10 s; slower requests may be ended while others wait; 0: off',
    ),
  GATEWAY_BUFFER_MB: z.coerce
    .number({ error: BUFFER_LIMIT })
    .int(BUFFER_LIMIT)
    .min(8, BUFFER_LIMIT)
    .max(65_536, BUFFER_LIMIT)
    .default(192)
    .describe(
      'MiB of unsent data for slow visitors and devices; above it the slowest are disconnected',
    ),
  GATEWAY_DRAIN_SECONDS: z.coerce
    .number({ error: DRAIN_TIME })
    .min(0, DRAIN_TIME)
    .max(60, DRAIN_TIME)
    .default(10)
    .describe('seconds that open requests may take to finish when the gateway stops'),
  GATEWAY_HOLD_SECONDS: z.coerce
    .number({ error: HOLD_TIME })
    .min(0, HOLD_TIME)
    .max(60, HOLD_TIME)
    .default(10)
    .describe('seconds that requests wait for a disconnected device; 0: no wait'),
  GATEWAY_POOL_AFFINITY: z
    .enum(['none', 'client'], { error: 'must be none or client' })
    .default('none')
    .describe(
      'endpoint selection in a pool: `none`: least busy endpoint; `client`: same endpoint for each client address',
    ),
  GATEWAY_REGION: z
    .string()
    .regex(/^[\w.-]{1,32}$/, 'must have 1 to 32 letters, digits, dots, hyphens or underscores')
    .default('self-hosted')
    .describe('name of the location of the gateway; clients show it as their region'),
  GATEWAY_CLIENT_WARN_BELOW: clientVersions
    .default([])
    .describe(
      'oldest versions of clients that are not asked to update, such as `ngrok-go/1.11, ngrok-javascript/1.4`; `agent` is a client without a name',
    ),
  GATEWAY_CLIENT_REFUSE_BELOW: clientVersions
    .default([])
    .describe('oldest versions of clients that may connect, in the same form'),
  GATEWAY_GEO_DB: z
    .string()
    .optional()
    .describe('MaxMind database of locations for policies; unset: no location data'),
  GATEWAY_ASN_DB: z
    .string()
    .optional()
    .describe('MaxMind database of autonomous systems for policies; unset: no AS data'),
  GATEWAY_DATA_DIR: z.string().optional().describe('data directory of the gateway'),
  GATEWAY_DATABASE_URL: DatabaseUrlSchema.optional().describe(
    'PostgreSQL database of a cluster, such as postgres://user@host/database; unset: single gateway',
  ),
  GATEWAY_DATABASE_PASSWORD_FILE: z
    .string()
    .optional()
    .describe('file with the password for GATEWAY_DATABASE_URL, read for each connection'),
  GATEWAY_PEER_LISTEN: listen
    .optional()
    .describe('host:port for connections from the other nodes of the cluster'),
  GATEWAY_PEER_ADDRESS: listen
    .optional()
    .describe('host:port that other nodes connect to; default: GATEWAY_PEER_LISTEN'),
  GATEWAY_JOIN_TOKEN_FILE: z
    .string()
    .optional()
    .describe(
      'file with a join token from `gateway join-token`, for the first start or after `gateway forget`',
    ),
  GATEWAY_RESERVED_DOMAIN: wildcardDomain
    .default('*.site.localhost')
    .describe('wildcard domain, reserved at the first start'),
  GATEWAY_RATE_LIMIT_KEYS: z.coerce
    .number({ error: RATE_LIMIT_KEYS })
    .int(RATE_LIMIT_KEYS)
    .min(1_000, RATE_LIMIT_KEYS)
    .max(1_000_000, RATE_LIMIT_KEYS)
    .default(100_000)
    .describe('maximum number of keys per rate limit; 28 MB of memory per 100,000 active keys'),
  GATEWAY_RATE_LIMIT_IPV6_PREFIX: z.coerce
    .number({ error: RATE_LIMIT_IPV6_PREFIX })
    .int(RATE_LIMIT_IPV6_PREFIX)
    .min(32, RATE_LIMIT_IPV6_PREFIX)
    .max(128, RATE_LIMIT_IPV6_PREFIX)
    .default(64)
    .describe('prefix length in bits by which rate limits count IPv6 visitors; 128: full address'),
  GATEWAY_TLS_CERT: z
    .string()
    .optional()
    .describe('PEM certificate chain of the HTTPS ingress; unset: issued by the local CA'),
  GATEWAY_TLS_KEY: z.string().optional().describe('PEM private key for GATEWAY_TLS_CERT'),
  LOG_LEVEL: z
    .enum(LOG_LEVELS, { error: `must be one of ${LOG_LEVELS.join(', ')}` })
    .default('info')
    .describe('log level on stderr; JSON lines, or readable text on a terminal'),
})

/** The settings of one process, as they were given or by default. */
export type Settings = z.output<typeof SettingsSchema>

export type Environment = Readonly<Record<string, string | undefined>>

/**
 * Reads the settings out of an environment. All that is wrong is said at once, one line each,
 * without repeating a value that could be a secret.
 */
export function parseSettings(environment: Environment): Settings {
  const given = Object.entries(environment).filter(
    ([name, value]) => (PREFIXES.test(name) || name === 'LOG_LEVEL') && value !== '',
  )
  const parsed = SettingsSchema.safeParse(Object.fromEntries(given))
  if (!parsed.success) throw new StartError(parsed.error.issues.flatMap(sentencesOf).join('\n'))
  return parsed.data
}

function sentencesOf(issue: z.core.$ZodIssue): string[] {
  if (issue.code === 'unrecognized_keys') return issue.keys.map(unknownSetting)
  return [`${issue.path.join('.')} ${issue.message}.`]
}

function unknownSetting(name: string): string {
  const meant = nearest(name, Object.keys(SettingsSchema.shape), MAX_WRONG_LETTERS)
  return `Unknown setting ${name}.${meant === undefined ? '' : ` Did you mean ${meant}?`}`
}
