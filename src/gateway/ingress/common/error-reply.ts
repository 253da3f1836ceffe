import { randomBytes } from 'node:crypto'
import type { Reply } from '../../../policy/exchange/outcome.ts'
import { DEFAULT_PAGE_POLICY, defaultPage } from '../../error-pages/default-page.ts'
import { type ErrorKind, type ErrorValues, KIND_TEXTS } from '../../error-pages/error-kind.ts'
import { hasField } from '../syntax/message-fields.ts'
import type { LocalReply } from './local-reply.ts'

/** An error of the gateway for a visitor, before it has a form. */
export interface VisitorError {
  readonly status: number
  readonly kind: ErrorKind
  readonly code: string | undefined
  /** What happened, for programs, and for people where the kind has no text. */
  readonly sentence: string
  /** Body of the answer in plain text. */
  readonly text: string
  /** Name and value in turn, without `content-type`. */
  readonly fields: readonly string[]
  readonly retryAfterS: number | undefined
}

/** What a visitor asks for. */
export interface AskedForm {
  /** All `Accept` fields, joined by commas. */
  readonly accept: string
  readonly hostname: string
}

/** A page that an account, or the gateway's owner, has set. */
export interface OwnPage {
  /** Undefined: its scripts are the account's, on names of the account. */
  readonly contentPolicy: string | undefined
  render(values: ErrorValues): string
}

/** Finds the own page for an error at a host. Answers at once, from memory or the local database. */
export interface ErrorPages {
  pageFor(hostname: string, kind: ErrorKind): OwnPage | undefined
}

export const NO_PAGES: ErrorPages = { pageFor: () => undefined }

/** An answer for an error, with the id under which the log has it. */
export interface ErrorReply extends LocalReply {
  readonly requestId: string
}

/** Bytes of a request id, which people read to each other. */
const ID_BYTES = 6
const TEXT = 'text/plain; charset=utf-8'
const GENERAL = 'The gateway could not process the request.'

/** The answer for an error: a page for browsers, problem details (RFC 9457) for programs, else a text. */
export function errorReply(error: VisitorError, asked: AskedForm, pages: ErrorPages): ErrorReply {
  const { status, fields } = error
  const requestId = randomBytes(ID_BYTES).toString('hex')
  const { type, body, more = [] } = formOf(error, asked, requestId, pages)
  const kept = withoutName(fields, 'content-type')
  const caching = hasField(fields, 'cache-control') ? [] : ['cache-control', 'no-store']
  const own = ['vary', 'accept', 'x-content-type-options', 'nosniff', 'x-request-id', requestId]
  return {
    status,
    fields: ['content-type', type, ...kept, ...caching, ...own, ...more],
    body,
    requestId,
  }
}

/** The same in plain text, for bytes that are no request. */
export function textReply(error: VisitorError): ErrorReply {
  return errorReply(error, { accept: '', hostname: '' }, NO_PAGES)
}

interface Form {
  readonly type: string
  readonly body: string
  readonly more?: readonly string[]
}

function formOf(error: VisitorError, asked: AskedForm, requestId: string, pages: ErrorPages): Form {
  const { status, kind, code, sentence, retryAfterS } = error
  const wanted = wantedForm(asked.accept)
  if (wanted === 'text') return { type: TEXT, body: error.text }
  const { title, message = sentence } = KIND_TEXTS[kind]
  if (wanted === 'json') {
    const problem = {
      type: 'about:blank',
      title,
      status,
      detail: sentence,
      code,
      request_id: requestId,
      retry_after: retryAfterS,
    }
    return { type: 'application/problem+json', body: `${JSON.stringify(problem)}\n` }
  }
  const values = { status, title, message, host: asked.hostname, requestId, code, retryAfterS }
  const page = pages.pageFor(asked.hostname, kind)
  const policy = page ? page.contentPolicy : DEFAULT_PAGE_POLICY
  return {
    type: 'text/html; charset=utf-8',
    body: page ? page.render(values) : defaultPage(kind, values),
    more: policy === undefined ? [] : ['content-security-policy', policy],
  }
}

const FORMS: ReadonlyMap<string, 'html' | 'json' | 'text'> = new Map([
  ['text/html', 'html'],
  ['application/json', 'json'],
  ['application/problem+json', 'json'],
  ['text/plain', 'text'],
])

/** The form that a client names with the highest weight, else the first of them (RFC 9110 12.5.1). */
function wantedForm(accept: string): 'html' | 'json' | 'text' {
  let best = 0
  let wanted: 'html' | 'json' | 'text' = 'text'
  for (const range of accept.split(',')) {
    const [type = '', ...parameters] = range.split(';')
    const form = FORMS.get(type.trim().toLowerCase())
    const weight = form && weightOf(parameters)
    if (!weight || weight <= best) continue
    best = weight
    wanted = form
  }
  return wanted
}

function weightOf(parameters: readonly string[]): number {
  const weight = parameters
    .map((it) => /^\s*q=([01](?:\.\d{0,3})?)\s*$/i.exec(it)?.[1])
    .find(Boolean)
  return weight === undefined ? 1 : Math.min(1, Number(weight))
}

/** Kinds of codes of policies. */
const POLICY_KINDS: ReadonlyMap<string | undefined, ErrorKind> = new Map([
  ['ERR_NGROK_3200', 'unknown'],
  ['ERR_NGROK_3202', 'upstream_failed'],
])

/** The error in a policy's answer; undefined for an answer that a policy has composed itself. */
export function policyError(reply: Reply): VisitorError | undefined {
  const { status, headers: fields, body: text, errorCode: code, sentence } = reply
  if (sentence === undefined) return undefined
  const kind = status === 429 ? 'too_many_requests' : (POLICY_KINDS.get(code) ?? 'default')
  const after = fields.indexOf('retry-after')
  return {
    status,
    kind,
    code,
    // Details of a failure are for the owner, who finds them in the log.
    sentence: status >= 500 ? GENERAL : sentence,
    text,
    fields,
    retryAfterS: after === -1 ? undefined : Number(fields[after + 1]),
  }
}

function withoutName(fields: readonly string[], name: string): string[] {
  return fields.filter((_, at) => fields[at - (at % 2)]?.toLowerCase() !== name)
}
