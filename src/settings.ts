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
  isLoopback,
  type ListenAddress,
  type PortRange,
  parseListenAddress,
  parsePortRange,
} from './base/listen-address.ts'
import { nearest } from './base/nearest.ts'
import { Secret } from './base/secret.ts'
import { DatabaseUrlSchema } from './gateway/postgres/database-url.ts'
import { type AllowEntry, parseAllowEntry } from './policy/outbound/outbound-allow.ts'

/** Settings have long names, so that four letters may be wrong and one still knows which is meant. */
const MAX_WRONG_LETTERS = 4
const PREFIXES = /^(AGENT|SVC|GATEWAY)_/
const TUNNEL_LIMIT = 'must be a whole number from 1 to 10000'
const RATE_LIMIT_KEYS = 'must be a whole number from 1000 to 1000000'
const LEAST_RATE = 'must be a whole number of kB/s from 0 to 1000000'
const DRAIN_TIME = 'must be between 0 and 60 seconds'
const TCP_RANGE = 'must be host:first-last of at most 10000 ports, such as 0.0.0.0:20000-20100'
const TCP_IDLE = 'must be a whole number of seconds from 10 to 604800'
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

/** Each address but the one that serves costs a connection at most; more would help nobody. */
const MAX_SERVERS = 5
const SERVERS = `must be host:port, or up to ${MAX_SERVERS} of them with commas between`
const servers = z
  .string()
  .transform((text) => text.split(',').map((address) => address.trim()))
  .refine((all) => all.length <= MAX_SERVERS && all.every(isServer), SERVERS)
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
/** What a client can send as `Authorization: Bearer …`: the characters of RFC 6750 section 2.1. */
export const ApiTokenSchema = secret
  .refine((token) => token.reveal().length >= 20, 'must have at least 20 characters')
  .refine(
    (token) => /^[\w.~+/-]+=*$/.test(token.reveal()),
    'must consist of letters, digits and - . _ ~ + /: nothing else can be sent as a bearer token',
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

/** Every setting with its meaning. `describe` texts are the table in docs/settings.md and `help settings`. */
export const SettingsSchema = z.strictObject({
  SVC_AUTHTOKEN: secret.optional().describe('authtoken of the service; better in a file'),
  SVC_AUTHTOKEN_FILE: z.string().optional().describe('file that holds the authtoken; watched'),
  SVC_SERVER_ADDR: servers
    .default([])
    .describe(
      'host:port of the gateway, or several with commas: a second session is kept ready; unset: the hosted service',
    ),
  SVC_INGRESS_ADDR: listen
    .optional()
    .describe('host:port where this device reaches its public domain; unset: where DNS leads'),
  SVC_CA_CERT: z.string().optional().describe("PEM file of the gateway's CA"),
  SVC_API_KEY: secret
    .optional()
    .describe('key to the management API, for `provision`; better in a file'),
  AGENT_DOMAIN: domain
    .optional()
    .describe(
      'public domain of the agent API; unset: local only (with `up`: agent.site.localhost)',
    ),
  AGENT_LISTEN: listen
    .default({ host: '127.0.0.1', port: 7040 })
    .describe('where the agent API listens on the device'),
  AGENT_PAGE_LISTEN: listen
    .optional()
    .describe(
      "where the device's page listens for others in the network; unset: on this machine alone, at AGENT_LISTEN",
    ),
  AGENT_DATA_DIR: z.string().optional().describe('data folder (under systemd: StateDirectory)'),
  AGENT_DEFAULT_POLICY: z
    .string()
    .optional()
    .describe('policy for tunnels created without one; unset and not there: the shipped one'),
  AGENT_API_TOKEN: ApiTokenSchema.optional().describe(
    "the owner's token of the agent API; unset: made at first start, see data/api-token",
  ),
  AGENT_API_TOKEN_SHA256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in hex, as provision writes it')
    .optional()
    .describe(
      'hash of a token that may write, as `provision` writes it: taken over once, as `provisioned`',
    ),
  AGENT_FORWARD_ALLOW: list
    .default([])
    .describe(
      'hosts or CIDRs, each with an optional :port, and unix:/paths, that tunnels may forward to beside loopback',
    ),
  AGENT_MAX_TUNNELS: z.coerce
    .number({ error: TUNNEL_LIMIT })
    .int(TUNNEL_LIMIT)
    .min(1, TUNNEL_LIMIT)
    .max(10_000, TUNNEL_LIMIT)
    .default(1_000)
    .describe('how many tunnels the device may hold'),
  AGENT_DRAIN_SECONDS: z.coerce
    .number({ error: DRAIN })
    .int(DRAIN)
    .min(0, DRAIN)
    .max(60, DRAIN)
    .default(10)
    .describe('how long requests under way may take to end when the agent stops'),
  AGENT_METERED: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .default('false')
    .transform((text) => text === 'true')
    .describe('for links that are paid by the byte, as 4G: below 30 MB a month while idle'),
  AGENT_HEARTBEAT_SECONDS: z.coerce
    .number({ error: HEARTBEAT })
    .int(HEARTBEAT)
    .min(5, HEARTBEAT)
    .max(300, HEARTBEAT)
    .optional()
    .describe(
      'how often the link is asked for life; it is given up 15 s after a missed answer, 13 s if metered',
    ),
  AGENT_PROBE_SECONDS: z.coerce
    .number({ error: PROBE })
    .int(PROBE)
    .refine((seconds) => seconds === 0 || (seconds >= 10 && seconds <= 86_400), PROBE)
    .optional()
    .describe('how often the agent looks at its own public domain; 0: only after a change'),
  AGENT_UPSTREAM_HEALTH: z
    .string()
    .refine(isUpstreamHealth, HEALTH_FORM)
    .default(DEFAULT_UPSTREAM.health)
    .describe(
      'how local services are checked: off, tcp (a connection), or a path that must answer below 500',
    ),
  AGENT_UPSTREAM_TIMEOUT: z.coerce
    .number({ error: TIMEOUT_RANGE })
    .int(TIMEOUT_RANGE)
    .min(1, TIMEOUT_RANGE)
    .max(3_600, TIMEOUT_RANGE)
    .default(DEFAULT_UPSTREAM.timeout)
    .describe('seconds after which our gateway answers 504 for a local service that says nothing'),
  AGENT_UNKNOWN_ACTIONS: z
    .enum(['warn', 'refuse'], { error: 'must be warn or refuse' })
    .default('warn')
    .describe('policy actions that only the hosted service may know; the own gateway refuses them'),
  GATEWAY_AGENT_LISTEN: listen
    .default({ host: '127.0.0.1', port: 4443 })
    .describe('where agents connect to the gateway'),
  GATEWAY_HTTP_LISTEN: listen
    .default({ host: '127.0.0.1', port: 8080 })
    .describe('public HTTP ingress'),
  GATEWAY_HTTPS_LISTEN: listen
    .default({ host: '127.0.0.1', port: 8443 })
    .describe('public HTTPS ingress'),
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
      'ports of TCP endpoints, as 0.0.0.0:20000-20100; their host is this one, or GATEWAY_CNAME_BASE for 0.0.0.0 and [::]; unset: none',
    ),
  GATEWAY_TCP_IDLE_SECONDS: z.coerce
    .number({ error: TCP_IDLE })
    .int(TCP_IDLE)
    .min(10, TCP_IDLE)
    .max(604_800, TCP_IDLE)
    .default(3_600)
    .describe('how long a connection to a TCP endpoint may be silent in both directions'),
  GATEWAY_API_LISTEN: listen
    .default({ host: '127.0.0.1', port: 8070 })
    .describe('management API of the gateway'),
  GATEWAY_API_HOSTS: list
    .default([])
    .describe('host names of the management API beside localhost and its addresses'),
  GATEWAY_CNAME_BASE: domain
    .default('gateway.localhost')
    .describe('CNAME targets of reserved domains lie below it; it has to lead to the gateway'),
  GATEWAY_OUTBOUND_ALLOW: outboundAllow
    .default([])
    .describe(
      'hosts, addresses or CIDRs, each with an optional :port, that policies and webhooks may reach beside .internal, and file: URLs of keys',
    ),
  GATEWAY_DNS_SERVERS: list
    .refine(
      (servers) =>
        servers.every((server) => isIP(parseListenAddress(server)?.host ?? server) !== 0),
      'must be addresses, each with an optional :port',
    )
    .default([])
    .describe("whom the DNS check of reserved domains asks; unset: the machine's resolvers"),
  GATEWAY_DNS_LISTEN: listen
    .optional()
    .describe('where the gateway answers DNS questions of the ACME authority, UDP and TCP'),
  GATEWAY_ACME_DIRECTORY: httpsUrl
    .optional()
    .describe(
      'ACME directory of the authority `letsencrypt`, the same at all gateways of a site; who sets it accepts its terms of service',
    ),
  GATEWAY_ACME_EMAIL: z
    .email('must be an e-mail address')
    .optional()
    .describe('whom the ACME authority may write to'),
  GATEWAY_LEAST_RATE: z.coerce
    .number({ error: LEAST_RATE })
    .int(LEAST_RATE)
    .min(0, LEAST_RATE)
    .max(1_000_000, LEAST_RATE)
    .default(16)
    .describe(
      'kB/s over 10 s: who moves less may be ended when others wait for the device; 0: nobody is',
    ),
  GATEWAY_BUFFER_MB: z.coerce
    .number({ error: BUFFER_LIMIT })
    .int(BUFFER_LIMIT)
    .min(8, BUFFER_LIMIT)
    .max(65_536, BUFFER_LIMIT)
    .default(192)
    .describe(
      'MiB of what slow visitors and devices have not taken; above it the slowest are ended',
    ),
  GATEWAY_DRAIN_SECONDS: z.coerce
    .number({ error: DRAIN_TIME })
    .min(0, DRAIN_TIME)
    .max(60, DRAIN_TIME)
    .default(10)
    .describe('how long requests under way may take to end when the gateway stops'),
  GATEWAY_HOLD_SECONDS: z.coerce
    .number({ error: HOLD_TIME })
    .min(0, HOLD_TIME)
    .max(60, HOLD_TIME)
    .default(10)
    .describe('how long requests wait for a device that has gone without a word; 0: they do not'),
  GATEWAY_POOL_AFFINITY: z
    .enum(['none', 'client'], { error: 'must be none or client' })
    .default('none')
    .describe(
      'who serves a request to a pool: the least busy endpoint, or for each client address the same one',
    ),
  GATEWAY_GEO_DB: z
    .string()
    .optional()
    .describe("file in MaxMind's format that says where addresses are; unset: policies cannot ask"),
  GATEWAY_ASN_DB: z
    .string()
    .optional()
    .describe('the same for the autonomous systems that addresses belong to'),
  GATEWAY_DATA_DIR: z.string().optional().describe("the gateway's data folder"),
  GATEWAY_DATABASE_URL: DatabaseUrlSchema.optional().describe(
    'PostgreSQL that several gateways share, as postgres://user@host/database; unset: one gateway alone',
  ),
  GATEWAY_DATABASE_PASSWORD_FILE: z
    .string()
    .optional()
    .describe('file with the password to GATEWAY_DATABASE_URL, read for each connection'),
  GATEWAY_PEER_LISTEN: listen
    .optional()
    .describe('where the other gateways of GATEWAY_DATABASE_URL connect to this one'),
  GATEWAY_PEER_ADDRESS: listen
    .optional()
    .describe('by which address they do; unset: that of GATEWAY_PEER_LISTEN'),
  GATEWAY_JOIN_TOKEN_FILE: z
    .string()
    .optional()
    .describe(
      'file with the token of `gateway join-token`; for the first start, and the one after `gateway forget`',
    ),
  GATEWAY_RESERVED_DOMAIN: wildcardDomain
    .default('*.site.localhost')
    .describe('wildcard domain that the gateway reserves at its first start'),
  GATEWAY_RATE_LIMIT_KEYS: z.coerce
    .number({ error: RATE_LIMIT_KEYS })
    .int(RATE_LIMIT_KEYS)
    .min(1_000, RATE_LIMIT_KEYS)
    .max(1_000_000, RATE_LIMIT_KEYS)
    .default(100_000)
    .describe('keys that each rate limit counts apart: 28 MB for each 100,000 that are busy'),
  GATEWAY_TLS_CERT: z
    .string()
    .optional()
    .describe('PEM certificate chain for the HTTPS ingress; unset: from the own CA'),
  GATEWAY_TLS_KEY: z.string().optional().describe('PEM private key of GATEWAY_TLS_CERT'),
  LOG_LEVEL: z
    .enum(LOG_LEVELS, { error: `must be one of ${LOG_LEVELS.join(', ')}` })
    .default('info')
    .describe('how much is logged on stderr: JSON lines, on a terminal for people'),
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
  return `There is no setting ${name}.${meant === undefined ? '' : ` Did you mean ${meant}?`}`
}
