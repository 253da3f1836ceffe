import * as z from 'zod'
import { parseDuration } from '../../base/clock.ts'
import { nearest } from '../../base/nearest.ts'
import {
  configFieldMessage,
  durationAdvice,
  meantConfigField,
  OWN_NAMES,
  type OwnersOf,
  shapeAdvice,
  typeAdvice,
  valueAdvice,
} from './mistaken-fields.ts'
import { CODES, child, isWithin, type ProblemKind, type ProblemList } from './problem.ts'

/** Marks a problem so that zod passes its kind on. */
export const problem = (kind: ProblemKind, message: string) => ({
  error: message,
  params: { kind },
})

/** RFC 9110 5.1, as far as the service takes it. */
const HEADER_NAME = /^[a-zA-Z0-9_-]{1,256}$/
const MAX_HEADER_VALUE = 8_192

export const isHeaderName = (text: string): boolean => HEADER_NAME.test(text)

/** The sentence about a name that no header can have. */
export const badHeaderName = (name: string): string =>
  `${name} is not a valid header name.${/:\s*$/.test(name) ? ' Remove the colon.' : ''}`

/** Valid characters of a field value (RFC 9110 5.5): no control characters except tab. */
export const isHeaderValue = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text)

/** YAML reads unquoted text as numbers or booleans. */
const HeaderText = z.preprocess(
  (value) => (typeof value === 'number' || typeof value === 'boolean' ? String(value) : value),
  z.string().max(MAX_HEADER_VALUE),
)

/** Names and values; `least` is how many there must be. The rest is up to `headerTemplates()`. */
export function headers(least: 0 | 1) {
  return z
    .record(z.string(), HeaderText)
    .refine(
      (map) => Object.keys(map).length >= least,
      problem('empty', 'At least one header is required.'),
    )
}

const DURATION_HINT = 'A duration must be text such as 90s, 10m or 1h.'

const NS_PER_MS = 1_000_000

/** A duration such as `90s` or `10m`, in milliseconds; as a number it is taken for nanoseconds. */
export function durationMs(least: string, most: string) {
  const [min = 0, max = 0] = [parseDuration(least), parseDuration(most)]
  // A value in seconds is far below the range. The message then explains the format.
  const isWithin = (ms: number) => ms >= min && ms <= max
  const asText = (value: unknown) =>
    typeof value === 'number' && isWithin(value / NS_PER_MS) ? `${value / NS_PER_MS}ms` : value
  const hint = (input: unknown) => `${DURATION_HINT}${durationAdvice(input)}`
  const text = z
    .string({ error: ({ input }) => (input === undefined ? undefined : hint(input)) })
    .refine((text) => parseDuration(text) !== undefined, {
      error: ({ input }) => hint(input),
      params: { kind: 'badDuration' },
    })
    .refine(
      (text) => {
        const ms = parseDuration(text)
        return ms === undefined || isWithin(ms)
      },
      {
        error: ({ path }) => `${fieldName(path, 'The duration')} must be from ${least} to ${most}.`,
        params: { kind: 'outOfRange' },
      },
    )
    .transform((text) => parseDuration(text) ?? 0)
  return z.preprocess(asText, text)
}

/** A list of at least one and at most `most` items. */
export function listOf<T extends z.ZodType>(item: T, most: number) {
  return z.array(item).min(1).max(most)
}

/** A place where a schema found a problem. */
interface IssuePlace {
  readonly pointer: string
  /** The value there, as it was written. */
  readonly value: unknown
  /** A valid value there. */
  readonly example: unknown
  readonly ownersOf: OwnersOf
}

function addIssue(issue: z.core.$ZodIssue, place: IssuePlace, problems: ProblemList): void {
  const { pointer, value, example, ownersOf } = place
  if (issue.code !== 'unrecognized_keys') {
    const isType = issue.code === 'invalid_type'
    const isItem = typeof issue.path.at(-1) === 'number'
    const advice = isType ? shapeAdvice(issue.expected, value, { example, isItem }) : ''
    problems.add(kindOf(issue), pointer, `${issue.message}${advice}`)
    return
  }
  for (const key of issue.keys) {
    const field = { key, value: fieldsOf(value)[key], example }
    problems.add('badValue', child(pointer, key), configFieldMessage(field, ownersOf))
  }
}

/** Adds one problem for all fields that are missing in an object. */
function addMissing(fields: readonly string[], pointer: string, problems: ProblemList): void {
  const [first, ...others] = fields
  if (first === undefined) return
  const names = fields.join(', ').replace(/, ([^,]*)$/, ' and $1')
  const message = `${names} ${others.length === 0 ? 'is' : 'are'} missing.`
  problems.add('badValue', child(pointer, first), message)
}

function kindOf(issue: z.core.$ZodIssue): ProblemKind {
  switch (issue.code) {
    case 'custom': {
      const kind: unknown = issue.params?.kind
      return typeof kind === 'string' && kind in CODES ? (kind as ProblemKind) : 'badValue'
    }
    case 'too_big':
      if (issue.origin === 'array' || issue.origin === 'set') return 'tooManyEntries'
      return issue.origin === 'string' ? 'tooLong' : 'outOfRange'
    case 'too_small':
      return issue.origin === 'array' || issue.origin === 'string' ? 'empty' : 'outOfRange'
    case 'invalid_value':
      return 'notAllowedValue'
    case 'invalid_key':
      return 'badHeader'
    default:
      return 'badValue'
  }
}

/** Name of the field at a path; `other` stands for items of lists. */
function fieldName(path: readonly PropertyKey[] | undefined, other: string): string {
  const field = path?.at(-1)
  return typeof field === 'string' ? field : other
}

/** The sentence of an issue for people; undefined leaves zod's own. */
function issueSentence(issue: z.core.$ZodRawIssue): string | undefined {
  const name = issue.path?.length ? fieldName(issue.path, 'An item') : 'config'
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined
        ? `${name} is missing.`
        : `${name} must be ${article(String(issue.expected))}.${typeAdvice(String(issue.expected), issue.input)}`
    case 'too_big':
      return `${name} ${amount('at most', issue.maximum, String(issue.origin))}.`
    case 'too_small':
      return `${name} ${amount('at least', issue.minimum, String(issue.origin))}.`
    case 'invalid_value': {
      const values = issue.values as readonly unknown[]
      const known = values
        .map(String)
        .join(', ')
        .replace(/, ([^,]*)$/, ' or $1')
      return issue.input === undefined
        ? `${name} is missing. It must be ${known}.`
        : `${name} must be ${known}.${valueAdvice(issue.input, values)}`
    }
    case 'invalid_key':
      return badHeaderName(name)
    default:
      return undefined
  }
}

function amount(bound: string, limit: unknown, origin: string): string {
  const shown = Number(limit).toLocaleString('en')
  switch (origin) {
    case 'string':
      return limit === 1 ? 'must not be empty' : `must have ${bound} ${shown} characters`
    case 'array':
      return `must have ${bound} ${shown} ${limit === 1 ? 'item' : 'items'}`
    default:
      return `must be ${bound} ${shown}`
  }
}

function article(type: string): string {
  switch (type) {
    case 'int':
      return 'a whole number'
    case 'boolean':
      return 'true or false'
    case 'string':
      return 'text'
    case 'array':
      return 'a list'
    case 'object':
    case 'record':
      return 'an object'
    default:
      return `a ${type}`
  }
}

/** Rounds of checks: some problems are visible only after others are replaced. */
const MAX_ROUNDS = 5
/** Bad parts of one configuration that are worth the mending. */
const MAX_MENDED = 100

interface ConfigSource {
  readonly schema: z.ZodType
  /** A configuration that the schema takes. */
  readonly example: unknown
  /** As it was written. */
  readonly config: unknown
  readonly pointer: string
  /** Other actions with a field, for messages. */
  readonly ownersOf?: OwnersOf
}

/** A configuration that is good enough to build an action. */
export interface ReadConfig {
  readonly value: unknown
  /** Pointers to values that were taken from the example. */
  readonly mended: readonly string[]
}

type Path = readonly (string | number)[]
type Fields = Readonly<Record<string, unknown>>

/**
 * Checks a configuration against the schema of its action, and adds the problems. Invalid parts are replaced
 * by the example, so that the rest can be checked, too.
 */
export function readConfig(source: ConfigSource, problems: ProblemList): ReadConfig {
  const { schema, example, pointer, ownersOf = () => [] } = source
  const mended = new Set<string>()
  let { config } = source
  for (let round = 0; round < MAX_ROUNDS && mended.size <= MAX_MENDED; round += 1) {
    const result = schema.safeParse(config, { error: issueSentence })
    if (result.success) return { value: result.data, mended: Array.from(mended) }
    const { issues } = result.error
    const elsewhere = fieldsElsewhere(issues, example, config)
    const missing = new Map<string, string[]>()
    for (const issue of issues) {
      if (mended.size > MAX_MENDED) break
      const path = issue.path as Path
      const at = pointerTo(path, pointer)
      // The length of a text says nothing where a list has to be.
      if (isWithin(at, mended)) continue
      const value = partOf(config, path)
      const field = path.at(-1)
      // A field that stands under another name is not missing as well.
      if (elsewhere.has(path.join('/'))) {
        // It is told as an unknown field.
      } else if (issue.code === 'invalid_type' && value === undefined && field !== undefined) {
        const around = pointerTo(path.slice(0, -1), pointer)
        missing.set(around, [...(missing.get(around) ?? []), String(field)])
      } else {
        addIssue(issue, { pointer: at, value, example: partOf(example, path), ownersOf }, problems)
      }
      config = mend(config, issue, source, mended)
    }
    for (const [around, fields] of missing) addMissing(fields, around, problems)
  }
  return { value: schema.parse(example), mended: [pointer] }
}

/** Paths of missing fields whose value stands under a mistaken name. */
function fieldsElsewhere(
  issues: readonly z.core.$ZodIssue[],
  example: unknown,
  config: unknown,
): ReadonlySet<string> {
  const paths = new Set<string>()
  for (const issue of issues) {
    if (issue.code !== 'unrecognized_keys') continue
    const path = issue.path as Path
    const present = fieldsOf(partOf(config, path))
    const known = Object.keys(fieldsOf(partOf(example, path)))
    const [only, ...others] = known
    for (const key of issue.keys) {
      const meant =
        meantConfigField(key, known) ??
        nearest(key, known) ??
        (others.length === 0 && OWN_NAMES.has(only ?? '') ? only : undefined)
      if (meant !== undefined && !(meant in present)) paths.add([...path, meant].join('/'))
    }
  }
  return paths
}

function mend(
  config: unknown,
  issue: z.core.$ZodIssue,
  { example, pointer }: ConfigSource,
  mended: Set<string>,
): unknown {
  const path = issue.path as Path
  if (issue.code === 'unrecognized_keys') {
    const unknown = new Set(issue.keys)
    const known = Object.entries(fieldsOf(partOf(config, path))).filter(
      ([key]) => !unknown.has(key),
    )
    return replaced(config, path, Object.fromEntries(known))
  }
  if (issue.code === 'too_big' && issue.origin === 'array') {
    const list = partOf(config, path) as readonly unknown[]
    return replaced(config, path, list.slice(0, Number(issue.maximum)))
  }
  mended.add(pointerTo(path, pointer))
  return replaced(config, path, partOf(example, path))
}

const pointerTo = (path: Path, from: string) => path.reduce<string>(child, from)

/** The value at a path. The first item of a list stands for all items. */
function partOf(value: unknown, path: Path): unknown {
  return path.reduce((part, step) => {
    if (Array.isArray(part)) return part[Number(step)] ?? part[0]
    return fieldsOf(part)[step]
  }, value)
}

/** The value with another value at a path; undefined removes the field. */
function replaced(value: unknown, [step, ...rest]: Path, part: unknown): unknown {
  if (step === undefined) return part
  if (Array.isArray(value))
    return value.with(Number(step), replaced(value[Number(step)], rest, part))
  const fields = fieldsOf(value)
  const { [step]: before, ...others } = fields
  const after = replaced(before, rest, part)
  return after === undefined ? others : { ...fields, [step]: after }
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {}
}
