import { noField } from '../../base/nearest.ts'

/** Fields of configurations that people write in place of others. Each has the first one that is known. */
const MEANT: Readonly<Record<string, readonly string[]>> = {
  status: ['status_code'],
  code: ['status_code'],
  statuscode: ['status_code'],
  text: ['body'],
  message: ['body', 'metadata'],
  html: ['body'],
  content: ['body'],
  response: ['body'],
  location: ['to', 'url'],
  target: ['to', 'url'],
  destination: ['to', 'url'],
  url: ['to'],
  upstream: ['url'],
  source: ['from'],
  pattern: ['from'],
  match: ['from'],
  regex: ['from'],
  replace: ['to'],
  replacement: ['to'],
  rewrite: ['to'],
  timeoutms: ['timeout'],
  timeoutseconds: ['timeout'],
  path: ['from'],
  limit: ['capacity'],
  max: ['capacity'],
  requests: ['capacity'],
  window: ['rate'],
  period: ['rate'],
  interval: ['rate'],
  per: ['rate'],
  key: ['bucket_key'],
  keys: ['bucket_key'],
  bucketkey: ['bucket_key'],
  cidrs: ['allow'],
  ips: ['allow'],
  ranges: ['allow'],
  allowed: ['allow'],
  allowcidrs: ['allow'],
  denied: ['deny'],
  blocked: ['deny'],
  denycidrs: ['deny'],
  users: ['credentials'],
  user: ['credentials'],
  username: ['credentials'],
  password: ['credentials'],
  header: ['headers'],
  fields: ['metadata'],
  data: ['metadata', 'body'],
  issuer: ['issuer_url'],
  threshold: ['error_threshold'],
  query: ['query_params'],
  params: ['query_params'],
}

/** Fields that hold names of the author's own. */
export const OWN_NAMES: ReadonlySet<string> = new Set(['headers', 'metadata', 'vars'])

/** Actions that have a field, by its name. */
export type OwnersOf = (field: string) => readonly string[]

const plain = (key: string) => key.toLowerCase().replace(/[-_]/g, '')

/** The known field that is meant by an unknown one. */
export function meantConfigField(key: string, known: readonly string[]): string | undefined {
  const name = plain(key)
  const same = known.find((field) => field.replaceAll('_', '') === name)
  return same ?? MEANT[name]?.find((field) => known.includes(field))
}

/** Headers that people set as a field of an action. Values of these are no secrets. */
const HEADERS: ReadonlySet<string> = new Set([
  ...['content-type', 'content-encoding', 'cache-control', 'retry-after', 'accept', 'user-agent'],
])

/** A field of a configuration that its action does not have. */
export interface UnknownField {
  readonly key: string
  readonly value: unknown
  /** A valid value of the object around it. */
  readonly example: unknown
}

const AFTER_LOGIN =
  "Check the visitor in a rule after it, such as !actions.ngrok.oauth.identity.email.endsWith('@example.com') with deny."

/** What to do about fields that no action has, where an action has the field beside. */
const ADVICE: readonly (readonly [field: RegExp, beside: string, sentence: string])[] = [
  [/^allow(?:ed)?(?:domains?|emails?)$|^email(?:domains|addresses)$/, 'client_id', AFTER_LOGIN],
  [/^permanent$/, 'status_code', 'Write status_code: 301.'],
  [
    /^(?:body|content|message|text|headers)$/,
    'status_code',
    'Use custom-response for a body or headers.',
  ],
]

/** The message for an unknown field of a configuration. */
export function configFieldMessage(
  { key, value, example }: UnknownField,
  ownersOf: OwnersOf,
): string {
  const fact = `${key} is not a field of this action.`
  const known = Object.keys(Object(example))
  const header = key.toLowerCase().replaceAll('_', '-')
  if (HEADERS.has(header) && known.includes('headers') && known.length > 1) {
    const shown = typeof value === 'string' && value.length <= MAX_WRAPPED ? value : '…'
    return `${fact} Write headers: {${header}: ${shown}}.`
  }
  const place = placeWithin(example, DEEPER[plain(key)] ?? plain(key))
  if (place !== undefined) return `${fact} Write it as ${place}.`
  const meant = meantConfigField(key, known)
  if (meant !== undefined) return `${fact} Did you mean ${meant}?`
  const message = noField(key, 'this action', known)
  const [only, ...others] = known
  if (message.endsWith('?')) return message
  const advice = ADVICE.find(([field, beside]) => field.test(plain(key)) && known.includes(beside))
  if (advice) return `${fact} ${advice[2]}`
  const owners = ownersOf(key)
  if (owners.length > 0 && owners.length <= 3)
    return `${message} ${key} is a field of ${owners.join(' and ')}.`
  if (only !== undefined && others.length === 0 && OWN_NAMES.has(only))
    return `${fact} Put fields of your own below ${only}.`
  return message
}

/** A text of several addresses, or of several words such as scopes. */
const PLAIN_ITEMS = /^(?:[\da-f.:/\s,]+|[a-z_\s,]+)$/
const SEPARATOR = /[\s,]+/

/** Longest text that is shown in an object around it. */
const MAX_WRAPPED = 100

/**
 * The value that an object around a text should be, as YAML: `{value: a}`. Undefined if the example of it has
 * more than one field, or holds no text.
 */
function wrappedText(example: unknown, text: string): string | undefined {
  if (typeof example === 'string') return text.length > MAX_WRAPPED ? undefined : text
  if (typeof example !== 'object' || example === null) return undefined
  const [entry, ...others] = Object.entries(example)
  if (!entry || others.length > 0) return undefined
  const [key, part] = entry
  const inner = wrappedText(part, text)
  if (inner === undefined) return undefined
  return Array.isArray(example) ? `[${inner}]` : `{${key}: ${inner}}`
}

/** What to write in place of a text where an object belongs, or of an object that is an item of texts. */
export function shapeAdvice(
  expected: string,
  value: unknown,
  { example, isItem }: { readonly example: unknown; readonly isItem: boolean },
): string {
  if (expected === 'object' && typeof value === 'string') {
    const wrapped = wrappedText(example, value)
    return wrapped === undefined ? '' : ` Write ${wrapped}.`
  }
  const isText = isItem && expected === 'string' && typeof example === 'string'
  return isText && typeof value === 'object' ? ` Write a text such as ${example}.` : ''
}

/** Where a field stands in an example, in an object below the first level. */
function placeWithin(example: unknown, field: string, path = ''): string | undefined {
  if (typeof example !== 'object' || example === null || Array.isArray(example)) return undefined
  for (const [key, part] of Object.entries(example)) {
    if (plain(key) === field && path !== '') return `${path}${key}`
    const place = placeWithin(part, field, `${path}${key}.`)
    if (place !== undefined) return place
  }
  return undefined
}

/** Fields of other products that stand deeper here. */
const DEEPER: Readonly<Record<string, string>> = {
  jwks: 'additionaljkus',
  jwksurl: 'additionaljkus',
  jwksuri: 'additionaljkus',
  jku: 'additionaljkus',
  algorithms: 'allowedalgorithms',
  algorithm: 'allowedalgorithms',
  alg: 'allowedalgorithms',
}

/** What to change in a value of the wrong type. */
export function typeAdvice(expected: string, input: unknown): string {
  const isText = typeof input === 'string'
  if (['number', 'int'].includes(expected) && isText && /^\d+(?:\.\d+)?$/.test(input)) {
    return ` Write ${input} without quotes.`
  }
  if (expected === 'boolean' && isText && /^(?:true|false)$/.test(input)) {
    return ` Write ${input} without quotes.`
  }
  if (expected === 'array' && isText && input.length <= 100) {
    return ` Write [${PLAIN_ITEMS.test(input) ? input.trim().split(SEPARATOR).join(', ') : input}].`
  }
  if (expected === 'array' && typeof input === 'object') return ' Begin each item with a dash.'
  const isObject = expected === 'object' || expected === 'record'
  return isObject && Array.isArray(input) ? ' Write name: value, without dashes.' : ''
}

const UNITS: Readonly<Record<string, string>> = { s: 's', m: 'm', h: 'h', d: 'd' }

/** What to write for a duration without a unit, or with a unit as a word. */
export function durationAdvice(input: unknown): string {
  const [, count, unit = 's'] = /^(\d+)\s*([a-z])?[a-z]*$/i.exec(String(input)) ?? []
  const letter = UNITS[unit.toLowerCase()]
  if (count === undefined || letter === undefined || count.length > 9) return ''
  return letter === 'd' ? ` Write ${Number(count) * 24}h.` : ` Write ${count}${letter}.`
}

/** What to write in place of a value that is none of those allowed. */
export function valueAdvice(input: unknown, values: readonly unknown[]): string {
  const core = (value: unknown) =>
    String(value)
      .toLowerCase()
      .replace(/^tls ?v?(?=\d)|[-_ ]/g, '')
  const same = values.find((value) => core(value) === core(input))
  if (same === undefined) return ''
  return typeof same === typeof input ? ` Write ${same}.` : ` Write ${same} without quotes.`
}
