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
 * Converts the policy of a client before text policies (SDK 1.0 to 1.3) to the text of a policy. Throws
 * ServiceError 301.
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

/** Names on the wire; clients call them `mutualTlsca` and `termination`. */
const TlsOptions = z.object({
  /** For HTTP endpoints. */
  MutualTLSCA: Authority.nullish(),
  /** The same for TLS endpoints. */
  MutualTLSAtEdge: Authority.nullish(),
  /** Without certificate and key, the gateway's certificate for the domain is used. */
  TLSTermination: z
    .strictObject({ cert: Pem.nullish(), key: Pem.nullish(), sealed_key: None })
    .refine(({ cert, key }) => !cert === !key, {
      error: 'certificate and key are given together or not at all',
    })
    .nullish(),
})

/** Converts TLS options to one action. Undefined if they are not set. */
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

/** Headers that one action can add or remove. */
const MAX_HEADERS = 10
/** Maximum number of options of one kind, such as ranges. The matching action has the same limit. */
const MAX_ITEMS = 1_000
/** Maximum number of conditions on the client name. */
const MAX_PATTERNS = 20
/** Maximum number of allowed addresses or domains of a sign-in, and maximum length of each. */
const MAX_PEOPLE = 200
const MAX_NAME = 254
/** Number of addresses or domains in one expression. */
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
/** Refuses `${`, because an action would evaluate it instead of using it literally. */
const Literal = z
  .string()
  .max(4_096)
  .refine((text) => !text.includes('${'), { error: 'it may not contain ${' })

const Text = Literal.nullish().transform((text) => text ?? '')

/** Client at a provider, and allowed people. If the lists are empty, all people are allowed. */
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

/** A policy document, limited to the parts that options use. */
export interface OptionRules {
  readonly on_tcp_connect?: readonly Rule[]
  readonly on_http_request?: readonly Rule[]
  readonly on_http_response?: readonly Rule[]
}

/** Conversion of an option to rules. `name` is the name that clients use. */
interface Option<T extends z.ZodType = z.ZodType> {
  readonly phase: 'on_http_request' | 'on_http_response'
  /** Whether it also applies to connections, which have no requests. */
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
 * In the order of evaluation. On requests: access, identity, then changes to the request. On responses:
 * headers, with compression last.
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
      // With an empty list, the hosted service would let all visitors pass, but the owner means the opposite.
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

/** Options that are read elsewhere, or that the agent carries out itself, such as the host header. */
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
    // TLS that is not terminated here reaches the agent, which asks for certificates.
    'MutualTLSAtAgent',
    'Name',
    'Description',
  ],
])

/**
 * Converts the options of a bind to rules, in addition to its traffic policy. Undefined if there are no
 * rules. Throws ServiceError 301 for unknown or impossible options, because an ignored option could open an
 * endpoint that its owner considers protected.
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

/** Whether a field has a value that differs from unset. */
export const isAsked = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== '' && value !== false && value !== 0

function refuseUnknown(name: string): void {
  if (Object.hasOwn(OPTIONS, name) || ELSEWHERE.has(name) || isOfTls(name)) return
  throw new ServiceError(301, `The option ${name} is unknown to this gateway.`)
}

const isOfTls = (name: string) => Object.hasOwn(TlsOptions.shape, name)

/** Terminates TLS after the connection is allowed, and before its requests. */
function tlsRules(options: Readonly<Record<string, unknown>>, asked: readonly string[]): Rule[] {
  const given = asked.filter(isOfTls).map((name) => [name, options[name]])
  const parsed = TlsOptions.safeParse(Object.fromEntries(given))
  if (!parsed.success)
    throw invalid(String(parsed.error.issues[0]?.path[0]), describe(parsed.error))
  const action = terminateTls(parsed.data)
  return action ? [{ name: 'TLS', actions: [action] }] : []
}

/**
 * Allows visitors that match a pattern of `allow`, and visitors that match no pattern of `deny`. With `allow`
 * alone, all others are refused. Visitors without a user agent are refused unless a pattern of `allow`
 * matches the empty name.
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

/**
 * Refuses signed-in visitors that are not listed. Compares addresses in lower case, because providers differ.
 */
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

/** Puts each `name:value` in the first group that does not contain its name. */
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

/** Describes the place of the problem, never the value, which may be a secret. */
function describe({ issues }: z.ZodError): string {
  const [issue] = issues
  const place = issue?.path.join('.')
  return `${place ? `${place}: ` : ''}${issue?.message ?? 'it is not as it should be'}`
}

const invalid = (name: string, message: string) =>
  new ServiceError(301, `The option ${name} cannot be used: ${message}.`)
