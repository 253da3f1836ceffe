import { AppError, type FieldError } from '../../base/app-error.ts'
import { isJsonObject } from '../tunnel.ts'
import type { PolicyReader } from './policy-check.ts'

/**
 * Replaces policies that are YAML text in a tunnel, or in a list of tunnels, as clients send them. The text is
 * read where policies are checked, not in this process. Throws AppError `invalid-request` with each text that
 * cannot be read.
 */
export async function withReadPolicies(body: unknown, read: PolicyReader): Promise<unknown> {
  const items: readonly unknown[] = Array.isArray(body) ? body : [body]
  const errors: FieldError[] = []
  const done: unknown[] = []
  for (const [index, item] of items.entries()) {
    const text = isJsonObject(item) ? item.policy : undefined
    if (typeof text !== 'string' || isJson(text)) {
      done.push(item)
      continue
    }
    const answer = await read(text)
    if ('json' in answer) {
      done.push({ ...(item as object), policy: answer.json })
      continue
    }
    const pointer = Array.isArray(body) ? `/${index}/policy` : '/policy'
    errors.push({ pointer, detail: detailOf(answer.problem) })
    if (errors.length === MAX_ERRORS) break
  }
  if (errors.length === 0) return Array.isArray(body) ? done : done[0]
  const count = errors.length === 1 ? 'One policy' : `${errors.length} policies`
  throw new AppError('invalid-request', `${count} cannot be read.`, { errors })
}

/** Policies that are read before the first answer. */
const MAX_ERRORS = 10

/** Details of fields are clauses. */
function detailOf(problem: string): string {
  const syntax = /^The policy is neither JSON nor YAML: (.*)$/.exec(problem)?.[1]
  return syntax === undefined ? `cannot be read. ${problem}` : `must be JSON or YAML: ${syntax}`
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
