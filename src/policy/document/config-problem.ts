import type { z } from 'zod'
import { noField } from '../../base/nearest.ts'
import { child } from './json-pointer.ts'
import { CODES, type ProblemKind, type ProblemList } from './problem.ts'

/** Adds what a schema found wrong with a configuration; `known` are the fields there are there. */
export function addIssue(
  issue: z.core.$ZodIssue,
  pointer: string,
  known: Readonly<Record<string, unknown>>,
  problems: ProblemList,
): void {
  if (issue.code !== 'unrecognized_keys') {
    problems.add(kindOf(issue), pointer, issue.message)
    return
  }
  for (const key of issue.keys) {
    const sentence = noField(key, 'this action', Object.keys(known))
    problems.add('badValue', child(pointer, key), sentence)
  }
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

/** The sentence of an issue for people; undefined leaves zod's own. */
export function issueSentence(issue: z.core.$ZodRawIssue): string | undefined {
  const field = issue.path?.at(-1)
  const name = typeof field === 'string' ? field : 'An item'
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined
        ? `${name} is missing.`
        : `${name} must be ${article(String(issue.expected))}.`
    case 'too_big':
      return `${name} ${amount('at most', issue.maximum, String(issue.origin))}.`
    case 'too_small':
      return `${name} ${amount('at least', issue.minimum, String(issue.origin))}.`
    case 'invalid_value': {
      const values = issue.values as readonly unknown[]
      return `${name} must be ${values
        .map(String)
        .join(', ')
        .replace(/, ([^,]*)$/, ' or $1')}.`
    }
    case 'invalid_key':
      return `${name} is not a valid header name.`
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
