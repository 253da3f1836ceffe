import type { Request } from 'express'
import { AppError } from '../base/app-error.ts'

/** `*`, or entity tags; weak ones begin with `W/`. */
type Tags = '*' | readonly string[]

const TAG = /^(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/
/** More than anybody has seen of one thing. */
const MAX_TAGS = 20

/** What a request says of the state that it wants to change (RFC 9110 section 13.1). */
export interface Conditions {
  /** `etag` is undefined where there is nothing yet. Throws AppError `precondition-failed`. */
  require(etag: string | undefined): void
}

/** Reads `If-Match` and `If-None-Match`. Throws AppError `invalid-request` for what is no entity tag. */
export function readConditions(request: Request): Conditions {
  const match = readTags(request, 'If-Match')
  const noneMatch = readTags(request, 'If-None-Match')
  return {
    require: (etag) => {
      // A weak tag says that two things are much the same; a change wants to know that they are.
      if (match && !fits(match, etag)) throw failed(etag)
      if (noneMatch && fits(noneMatch === '*' ? '*' : noneMatch.map(strong), etag)) {
        throw failed(etag)
      }
    },
  }
}

function readTags(request: Request, name: string): Tags | undefined {
  const text = request.get(name)?.trim()
  if (text === undefined) return undefined
  if (text === '*') return text
  const tags = text.split(',').map((part) => part.trim())
  if (tags.length <= MAX_TAGS && tags.every((tag) => TAG.test(tag))) return tags
  throw new AppError(
    'invalid-request',
    `${name} must be * or an ETag in quotes, such as ${name}: "5c1f".`,
  )
}

function fits(tags: Tags, etag: string | undefined): boolean {
  if (etag === undefined) return false
  return tags === '*' || tags.includes(etag)
}

const strong = (tag: string) => tag.replace(/^W\//, '')

function failed(etag: string | undefined): AppError {
  const now = etag === undefined ? 'The resource does not exist' : `The current ETag is ${etag}`
  return new AppError('precondition-failed', `${now}. Read the resource again, then retry.`)
}
