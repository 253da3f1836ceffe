import type { z } from 'zod'
import { addIssue, issueSentence } from './config-problem.ts'
import { child, isWithin } from './json-pointer.ts'
import type { ProblemList } from './problem.ts'

/** What cannot be seen before something else is mended takes a round more. */
const MAX_ROUNDS = 5
/** Bad parts of one configuration that are worth the mending. */
const MAX_MENDED = 100

export interface ConfigSource {
  readonly schema: z.ZodType
  /** A configuration that the schema takes. */
  readonly example: unknown
  /** As it was written. */
  readonly config: unknown
  readonly pointer: string
}

/** A configuration that an action can be built with, whatever was written. */
export interface ReadConfig {
  readonly value: unknown
  /** Pointers to what was taken from the example: nothing there is the author's. */
  readonly mended: readonly string[]
}

type Path = readonly (string | number)[]
type Fields = Readonly<Record<string, unknown>>

/**
 * Checks a configuration against the schema of its action and adds what is wrong with it. Bad parts
 * are taken from the example, so that the action can be built and all the others be checked too.
 */
export function readConfig(source: ConfigSource, problems: ProblemList): ReadConfig {
  const { schema, example, pointer } = source
  const mended = new Set<string>()
  let { config } = source
  for (let round = 0; round < MAX_ROUNDS && mended.size <= MAX_MENDED; round += 1) {
    const result = schema.safeParse(config, { error: issueSentence })
    if (result.success) return { value: result.data, mended: Array.from(mended) }
    for (const issue of result.error.issues) {
      if (mended.size > MAX_MENDED) break
      const path = issue.path as Path
      const at = pointerTo(path, pointer)
      // The length of a text says nothing where a list has to be.
      if (isWithin(at, mended)) continue
      addIssue(issue, at, fieldsOf(partOf(example, path)), problems)
      config = mend(config, issue, source, mended)
    }
  }
  return { value: schema.parse(example), mended: [pointer] }
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

/** What stands at a path; the first item of a list stands for all of them. */
function partOf(value: unknown, path: Path): unknown {
  return path.reduce((part, step) => {
    if (Array.isArray(part)) return part[Number(step)] ?? part[0]
    return fieldsOf(part)[step]
  }, value)
}

/** The value with another one at a path; undefined takes a field away. */
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
