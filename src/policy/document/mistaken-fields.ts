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

/** The known field that is meant by an unknown one. */
export function meantConfigField(key: string, known: readonly string[]): string | undefined {
  const name = key.toLowerCase().replace(/[-_]/g, '')
  const same = known.find((field) => field.replaceAll('_', '') === name)
  return same ?? MEANT[name]?.find((field) => known.includes(field))
}

/** The message for an unknown field of a configuration. */
export function configFieldMessage(
  key: string,
  known: readonly string[],
  ownersOf: OwnersOf,
): string {
  const fact = `${key} is not a field of this action.`
  const meant = meantConfigField(key, known)
  if (meant !== undefined) return `${fact} Did you mean ${meant}?`
  const message = noField(key, 'this action', known)
  const [only, ...others] = known
  if (message.endsWith('?')) return message
  const owners = ownersOf(key)
  if (owners.length > 0 && owners.length <= 3)
    return `${message} ${key} is a field of ${owners.join(' and ')}.`
  if (only !== undefined && others.length === 0 && OWN_NAMES.has(only))
    return `${fact} Put fields of your own below ${only}.`
  return message
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
  if (expected === 'array' && isText && input.length <= 100) return ` Write [${input}].`
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
  const same = values.find((value) => {
    const [written, wanted] = [String(input).toLowerCase(), String(value).toLowerCase()]
    return written.replace(/[-_ ]/g, '') === wanted.replace(/[-_ ]/g, '')
  })
  if (same === undefined) return ''
  return typeof same === typeof input ? ` Write ${same}.` : ` Write ${same} without quotes.`
}
