import * as z from 'zod'
import { ServiceError } from '../records/service-error.ts'

/** Base64 of the JSON of a configuration. */
const Config = z
  .string()
  .max(262_144)
  .nullish()
  .transform((text, context) => {
    if (!text) return {}
    try {
      return JSON.parse(Buffer.from(text, 'base64').toString()) as unknown
    } catch {
      context.addIssue('not JSON in base64')
      return z.NEVER
    }
  })
const Rules = z
  .array(
    z.strictObject({
      Name: z.string().nullish(),
      Expressions: z.array(z.string()).nullish(),
      Actions: z.array(z.strictObject({ Type: z.string(), Config })).nullish(),
    }),
  )
  .nullish()
const Policy = z.strictObject({ Inbound: Rules, Outbound: Rules })

/**
 * The policy of a client from before traffic policies were texts (SDK 1.0 to 1.3), as the text that it
 * means. Throws ServiceError 301.
 */
export function oldPolicyText(value: unknown): string {
  const parsed = Policy.safeParse(value)
  if (parsed.success) {
    const { Inbound, Outbound } = parsed.data
    return JSON.stringify({ inbound: rulesOf(Inbound), outbound: rulesOf(Outbound) })
  }
  const [issue] = parsed.error.issues
  const place = issue?.path.join('.') || 'the policy'
  throw new ServiceError(301, `The option Policy cannot be used: ${place}: ${issue?.message}.`)
}

function rulesOf(rules: z.output<typeof Rules>) {
  return (rules ?? []).map(({ Name, Expressions, Actions }) => ({
    ...(Name ? { name: Name } : {}),
    expressions: Expressions ?? [],
    actions: (Actions ?? []).map((action) => ({ type: action.Type, config: action.Config })),
  }))
}

/** PEM in base64. */
const Pem = z
  .string()
  .max(131_072)
  .transform((text) => Buffer.from(text, 'base64').toString())
const Authority = z.strictObject({ mutual_tls_ca: Pem })
const None = z.literal('').nullish()

/** By their names on the wire; clients call them `mutualTlsca` and `termination`. */
const TlsOptions = z.object({
  /** Of HTTP endpoints. */
  MutualTLSCA: Authority.nullish(),
  /** The same of TLS ones. */
  MutualTLSAtEdge: Authority.nullish(),
  /** Without certificate and key: with the certificate that the gateway has for the domain. */
  TLSTermination: z
    .strictObject({ cert: Pem.nullish(), key: Pem.nullish(), sealed_key: None })
    .refine(({ cert, key }) => !cert === !key, {
      error: 'certificate and key are given together or not at all',
    })
    .nullish(),
})

/** What they come to: one action; undefined when none of them is asked for. */
function terminateTls(options: z.output<typeof TlsOptions>) {
  const { MutualTLSCA, MutualTLSAtEdge, TLSTermination } = options
  const authorities = [MutualTLSCA, MutualTLSAtEdge].flatMap((it) => it?.mutual_tls_ca ?? [])
  if (authorities.length === 0 && !TLSTermination) return undefined
  const config = {
    ...(TLSTermination?.cert && {
      server_certificate: TLSTermination.cert,
      server_private_key: TLSTermination.key,
    }),
    ...(authorities.length > 0 && { mutual_tls_certificate_authorities: authorities }),
  }
  return { type: 'terminate-tls', config }
}

/** Headers that one action adds or removes. */
const MAX_HEADERS = 10
/** Options of one kind, such as ranges; as many as the action takes that is made of them. */
const MAX_ITEMS = 1_000
/** Conditions that are asked of one name of a client. */
const MAX_PATTERNS = 20
/** Addresses, or domains, that one log-in lets in, and characters of one. */
const MAX_PEOPLE = 200
const MAX_NAME = 254
/** Those that one expression asks about. */
const PEOPLE_AT_ONCE = 10
const EVERYBODY = ['0.0.0.0/0', '::/0']
const USER_AGENT = "(hasReqHeader('user-agent') ? getReqHeader('user-agent')[0] : '')"

const Texts = z
  .array(z.string().max(8_192))
  .max(MAX_ITEMS)
  .nullish()
  .transform((list) => list ?? [])
const Patterns = Texts.refine((list) => list.length <= MAX_PATTERNS, {
  error: `at most ${MAX_PATTERNS} patterns are allowed`,
})
const People = z
  .array(z.string().min(1).max(MAX_NAME))
  .max(MAX_PEOPLE)
  .nullish()
  .transform((list) => list ?? [])
/** An action would compute it; what is meant as it stands must not come out as something else. */
const Literal = z
  .string()
  .max(4_096)
  .refine((text) => !text.includes('${'), { error: 'it may not contain ${' })

const Text = Literal.nullish().transform((text) => text ?? '')

/** Of a client at a provider, and of the people that may come; without names of any, all may. */
const login = {
  client_id: Text,
  client_secret: Text,
  scopes: Texts,
  allow_emails: People,
  allow_domains: People,
}

interface Action {
  readonly type: string
  readonly config: object
}

interface Rule {
  readonly name: string
  readonly expressions?: readonly string[]
  readonly actions: readonly Action[]
}

/** A policy document, as far as options are written as one. */
export interface OptionRules {
  readonly on_tcp_connect?: readonly Rule[]
  readonly on_http_request?: readonly Rule[]
  readonly on_http_response?: readonly Rule[]
}

/** What an option comes to; `name` is how a client knows it. */
interface Option<T extends z.ZodType = z.ZodType> {
  readonly phase: 'on_http_request' | 'on_http_response'
  /** True when it can be asked of a connection, too, which has no requests. */
  readonly isOfConnections?: boolean
  readonly schema: T
  readonly rules: (value: z.output<T>, name: string) => readonly Rule[]
}

const option = <T extends z.ZodType>(parts: Option<T>) => parts as unknown as Option
const rule = (name: string, type: string, config: object): Rule => ({
  name,
  actions: [{ type, config }],
})

const Headers = z.strictObject({ add: Texts, remove: Texts })
const headerRules = ({ add, remove }: z.output<typeof Headers>, name: string): Rule[] => {
  const actions = [
    ...inGroups(remove).map((headers) => ({ type: 'remove-headers', config: { headers } })),
    ...groupsOf(add, name).map((headers) => ({ type: 'add-headers', config: { headers } })),
  ]
  return actions.length > 0 ? [{ name, actions }] : []
}

/**
 * In the order in which they are met on the way in: who may come at all, who one is, then what becomes
 * of the request; on the way out headers, and compression as the last thing.
 */
const OPTIONS: Readonly<Record<string, Option>> = {
  IPRestriction: option({
    phase: 'on_http_request',
    isOfConnections: true,
    schema: z.strictObject({ allow_cidrs: Texts, deny_cidrs: Texts }),
    rules({ allow_cidrs: allow, deny_cidrs: deny }, name) {
      if (allow.length + deny.length === 0) return []
      return [rule(name, 'restrict-ips', { allow: allow.length > 0 ? allow : EVERYBODY, deny })]
    },
  }),
  IPPolicyRef: option({
    phase: 'on_http_request',
    isOfConnections: true,
    schema: Literal,
    rules: (id, name) => [rule(name, 'restrict-ips', { ip_policies: [id] })],
  }),
  UserAgentFilter: option({
    phase: 'on_http_request',
    schema: z.strictObject({ allow: Patterns, deny: Patterns }),
    rules: userAgentRules,
  }),
  Auth: option({
    phase: 'on_http_request',
    schema: Literal,
    rules: (pair, name) => [rule(name, 'basic-auth', { credentials: [pair] })],
  }),
  BasicAuth: option({
    phase: 'on_http_request',
    schema: z.strictObject({
      credentials: z
        .array(z.strictObject({ username: Literal, cleartext_password: Literal }))
        .max(MAX_ITEMS),
    }),
    rules({ credentials: pairs }, name) {
      // Without one the hosted service would let everybody pass, and who asks for it means nobody.
      if (pairs.length === 0) throw invalid(name, 'credentials are required')
      const credentials = pairs.map((pair) => `${pair.username}:${pair.cleartext_password}`)
      return [rule(name, 'basic-auth', { credentials })]
    },
  }),
  OAuth: option({
    phase: 'on_http_request',
    schema: z.strictObject({ provider: z.string().max(64), ...login }),
    rules: ({ allow_emails: emails, allow_domains: domains, ...config }, name) => [
      rule(name, 'oauth', config),
      ...allowedPeople(name, 'oauth', emails, domains),
    ],
  }),
  OIDC: option({
    phase: 'on_http_request',
    schema: z.strictObject({ issuer_url: Literal, ...login }),
    rules: ({ allow_emails: emails, allow_domains: domains, ...config }, name) => [
      rule(name, 'openid-connect', config),
      ...allowedPeople(name, 'oidc', emails, domains),
    ],
  }),
  WebhookVerification: option({
    phase: 'on_http_request',
    schema: z.strictObject({ provider: z.string().max(64), secret: Literal }),
    rules: ({ provider, secret }, name) => [
      rule(name, 'verify-webhook', { provider: provider.toLowerCase(), secret }),
    ],
  }),
  CircuitBreaker: option({
    phase: 'on_http_request',
    schema: z.strictObject({ error_threshold: z.number().min(0).max(1) }),
    rules: (config, name) =>
      config.error_threshold > 0 ? [rule(name, 'circuit-breaker', config)] : [],
  }),
  RequestHeaders: option({ phase: 'on_http_request', schema: Headers, rules: headerRules }),
  ResponseHeaders: option({ phase: 'on_http_response', schema: Headers, rules: headerRules }),
  Compression: option({
    phase: 'on_http_response',
    schema: z.strictObject({}),
    rules: (_, name) => [rule(name, 'compress-response', {})],
  }),
}

const OPTION_ENTRIES = Object.entries(OPTIONS)

/** Options that are read elsewhere, or say what the agent does itself, such as to set the host. */
const ELSEWHERE: ReadonlySet<string> = new Set([
  ...['URL', 'Domain', 'Hostname', 'Subdomain', 'TrafficPolicy', 'Policy', 'LocalUrlScheme'],
  ...[
    'LocalURLScheme',
    'HostHeaderRewrite',
    'Addr',
    'ProxyProto',
    'WebsocketTCPConverter',
    'Token',
    'Metadata',
    'Bindings',
    'PoolingEnabled',
    'AllowsPooling',
    // TLS that nothing ends here reaches the agent, which asks for certificates.
    'MutualTLSAtAgent',
    'Name',
    'Description',
  ],
])

/**
 * The rules that the options of a bind come to, beside its traffic policy; undefined when there are
 * none. To ignore one in silence would open what its owner believes closed: what is not known, or
 * cannot be, is refused with ServiceError 301.
 */
export function optionRules(
  options: Readonly<Record<string, unknown>>,
  carries: 'requests' | 'connections',
): OptionRules | undefined {
  const asked = Object.keys(options).filter((name) => isAsked(options[name]))
  for (const name of asked) refuseUnknown(name)
  const rules: Record<keyof OptionRules, Rule[]> = {
    on_tcp_connect: [],
    on_http_request: [],
    on_http_response: [],
  }
  for (const [name, { phase, isOfConnections, schema, rules: rulesOf }] of OPTION_ENTRIES) {
    if (!asked.includes(name)) continue
    if (carries === 'connections' && !isOfConnections) {
      throw invalid(name, 'it is not for TCP or TLS endpoints')
    }
    const parsed = schema.safeParse(options[name])
    if (!parsed.success) throw invalid(name, describe(parsed.error))
    const at = carries === 'connections' ? 'on_tcp_connect' : phase
    rules[at].push(...rulesOf(parsed.data, name))
  }
  rules.on_tcp_connect.push(...tlsRules(options, asked))
  const phases = Object.entries(rules).filter(([, list]) => list.length > 0)
  return phases.length > 0 ? Object.fromEntries(phases) : undefined
}

/** Whether a field says more than that it is not set. */
export const isAsked = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== '' && value !== false && value !== 0

function refuseUnknown(name: string): void {
  if (Object.hasOwn(OPTIONS, name) || ELSEWHERE.has(name) || isOfTls(name)) return
  throw new ServiceError(301, `The option ${name} is unknown to this gateway.`)
}

const isOfTls = (name: string) => Object.hasOwn(TlsOptions.shape, name)

/** TLS ends when the connection may come at all; requests come after that. */
function tlsRules(options: Readonly<Record<string, unknown>>, asked: readonly string[]): Rule[] {
  const given = asked.filter(isOfTls).map((name) => [name, options[name]])
  const parsed = TlsOptions.safeParse(Object.fromEntries(given))
  if (!parsed.success)
    throw invalid(String(parsed.error.issues[0]?.path[0]), describe(parsed.error))
  const action = terminateTls(parsed.data)
  return action ? [{ name: 'TLS', actions: [action] }] : []
}

/**
 * Lets pass whom a pattern of `allow` knows, and whom none of `deny` does; with `allow` alone nobody
 * else. Who does not say what they are is refused unless `allow` has a pattern for an empty name.
 */
function userAgentRules(
  { allow, deny }: { readonly allow: readonly string[]; readonly deny: readonly string[] },
  name: string,
): Rule[] {
  if (allow.length + deny.length === 0) return []
  const matches = (pattern: string) => `${USER_AGENT}.matches(${JSON.stringify(pattern)})`
  const denied = [`${USER_AGENT} == ''`, ...deny.map(matches)].join(' || ')
  const expressions = [
    ...allow.map((pattern) => `!${matches(pattern)}`),
    ...(deny.length > 0 ? [denied] : []),
  ]
  const config = {
    status_code: 403,
    headers: {
      'content-type': 'text/plain; charset=utf-8',
      'ngrok-error-code': 'ERR_NGROK_3211',
    },
    body: 'This endpoint does not accept your user agent. (ERR_NGROK_3211)\n',
  }
  return [{ name, expressions, actions: [{ type: 'custom-response', config }] }]
}

/** Sends away who has signed in and is not named; a provider may write an address in any case. */
function allowedPeople(
  name: string,
  action: 'oauth' | 'oidc',
  emails: readonly string[],
  domains: readonly string[],
): Rule[] {
  if (emails.length + domains.length === 0) return []
  const email = `actions.ngrok.${action}.identity.email.lowerAscii()`
  const isNone = (isOne: (texts: readonly string[]) => string, names: readonly string[]) =>
    inGroups(names, PEOPLE_AT_ONCE).map((group) => {
      return `!(${isOne(group.map((text) => text.toLowerCase()))})`
    })
  const expressions = [
    ...isNone((texts) => `${email} in ${JSON.stringify(texts)}`, emails),
    ...isNone((texts) => texts.map((text) => endsWith(email, `@${text}`)).join(' || '), domains),
  ]
  const config = {
    status_code: 403,
    headers: {
      'content-type': 'text/plain; charset=utf-8',
      'cache-control': 'no-store',
      'ngrok-error-code': 'ERR_GATEWAY_NOT_ALLOWED',
    },
    body: 'Your account has no access to this endpoint. Sign in with another account at /ngrok/login. (ERR_GATEWAY_NOT_ALLOWED)\n',
  }
  return [{ name, expressions, actions: [{ type: 'custom-response', config }] }]
}

const endsWith = (text: string, end: string) => `${text}.endsWith(${JSON.stringify(end)})`

/** Each `name:value` in a group where its name has not been yet. */
function groupsOf(fields: readonly string[], option: string): Record<string, string>[] {
  const groups: Map<string, string>[] = []
  for (const field of fields) {
    const colon = field.indexOf(':')
    if (colon < 1) throw invalid(option, 'headers must have the form name:value')
    const name = field.slice(0, colon).trim().toLowerCase()
    const value = field.slice(colon + 1).trim()
    const free = groups.find((group) => !group.has(name) && group.size < MAX_HEADERS)
    if (free) free.set(name, value)
    else groups.push(new Map([[name, value]]))
  }
  return groups.map((group) => Object.fromEntries(group))
}

function inGroups(names: readonly string[], size = MAX_HEADERS): string[][] {
  const groups: string[][] = []
  for (let at = 0; at < names.length; at += size) groups.push(names.slice(at, at + size))
  return groups
}

/** Says where, never what: a value may be a secret. */
function describe({ issues }: z.ZodError): string {
  const [issue] = issues
  const place = issue?.path.join('.')
  return `${place ? `${place}: ` : ''}${issue?.message ?? 'it is not as it should be'}`
}

const invalid = (name: string, message: string) =>
  new ServiceError(301, `The option ${name} cannot be used: ${message}.`)
