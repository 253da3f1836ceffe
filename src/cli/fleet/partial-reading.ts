import * as z from 'zod'
import { nearest, noField } from '../../base/nearest.ts'

/** Keys from the top of a document to a value. */
export type Keys = readonly PropertyKey[]

export interface ReadingMistake {
  readonly keys: Keys
  readonly sentence: string
}

export interface PartialReading<T> {
  /** Undefined if nothing can be used. */
  readonly data: T | undefined
  readonly mistakes: readonly ReadingMistake[]
  /** Values that are not in the data because of a mistake. */
  readonly leftOut: readonly Keys[]
}

/** Stand for required values that are missing or wrong. */
const STAND_INS: Readonly<Record<string, unknown>> = {
  version: 1,
  sets: {},
  tunnels: [],
  forwards_to: 'localhost',
}
/** Names of the objects that have fields, by the key of the object or of its list. */
const OWNERS: Readonly<Record<string, string>> = {
  connect: 'connect',
  sets: 'a set',
  tunnels: 'a tunnel',
  upstream: 'upstream',
}

/**
 * Validates a document, and returns the valid part beside the mistakes, so that one run finds all of them. A
 * misspelt field counts as the field that it probably means.
 */
export function readAsFarAsPossible<T>(schema: z.ZodType<T>, value: unknown): PartialReading<T> {
  const known = new Map<readonly string[], readonly string[]>()
  const parsed = schema.safeParse(value, {
    // The issues of the result have the same list of keys, without the schema.
    error: (issue) => {
      if (issue.code === 'unrecognized_keys') known.set(issue.keys, fieldsOf(issue.inst))
      return undefined
    },
  })
  if (parsed.success) return { data: parsed.data, mistakes: [], leftOut: [] }
  const usable = structuredClone(value)
  const leftOut: Keys[] = []
  const mistakes: ReadingMistake[] = []
  const meantKeys = new Set<string>()
  const unknown = parsed.error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys' ? issue.keys.map((key) => ({ key, issue })) : [],
  )
  for (const { key, issue } of unknown) {
    const names = known.get(issue.keys) ?? []
    const keys = [...issue.path, key]
    mistakes.push({ keys, sentence: noField(key, ownerOf(issue.path), names) })
    const owner = valueAt(usable, issue.path) as Record<string, unknown>
    const meant = nearest(key, names)
    if (meant !== undefined && !(meant in owner)) {
      owner[meant] = owner[key]
      meantKeys.add(JSON.stringify([...issue.path, meant]))
    } else leftOut.push(keys)
    delete owner[key]
  }
  for (const issue of parsed.error.issues) {
    const { path } = issue
    if (issue.code === 'unrecognized_keys' || meantKeys.has(JSON.stringify(path))) continue
    mistakes.push({ keys: path, sentence: `${nameOf(path)} ${reasonOf(issue, value)}.` })
    leaveOut(usable, path)
    leftOut.push(path)
  }
  return { data: schema.safeParse(usable).data, mistakes, leftOut }
}

function leaveOut(document: unknown, path: Keys): void {
  const owner = valueAt(document, path.slice(0, -1))
  const key = path.at(-1)
  if (typeof owner !== 'object' || owner === null || key === undefined) return
  const standIn = path[0] === 'policies' && path.length === 2 ? {} : STAND_INS[String(key)]
  if (standIn === undefined) Reflect.deleteProperty(owner, key)
  else Reflect.set(owner, key, structuredClone(standIn))
}

function fieldsOf(schema: unknown): readonly string[] {
  return schema instanceof z.ZodObject ? Object.keys(schema.shape) : []
}

function ownerOf(path: Keys): string {
  const [last, before] = [path.at(-1), path.at(-2)]
  return OWNERS[String(last)] ?? OWNERS[String(before)] ?? 'the file'
}

/** `forwards_to`, or `tags[0]` for a part of a list. */
function nameOf(path: Keys): string {
  const last = path.at(-1)
  if (last === undefined) return 'The file'
  return typeof last === 'number' ? `${nameOf(path.slice(0, -1))}[${last}]` : String(last)
}

function reasonOf(issue: z.core.$ZodIssue, document: unknown): string {
  if (issue.code === 'invalid_key') return issue.issues[0]?.message ?? 'is not a valid name'
  if (valueAt(document, issue.path) === undefined) return 'is missing'
  if (issue.code !== 'invalid_type') return issue.message
  const expected = NAMES[issue.expected] ?? issue.expected
  return `must be ${/^[aeiou]/.test(expected) ? 'an' : 'a'} ${expected}`
}

/** Types as people call them in YAML. */
const NAMES: Readonly<Record<string, string>> = {
  array: 'list',
  object: 'map of names and values',
  record: 'map of names and values',
  string: 'text',
}

function valueAt(document: unknown, path: Keys): unknown {
  return path.reduce<unknown>(
    (inner, key) => (inner as Record<PropertyKey, unknown> | null | undefined)?.[key],
    document,
  )
}
