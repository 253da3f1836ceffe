import { isAscii } from 'node:buffer'
import { parseQuery } from '../exchange/parsed-fields.ts'
import { jsonSteps } from '../expression/account.ts'
import type { Evaluation } from '../expression/evaluation.ts'
import {
  type ExpressionFunction,
  fn,
  fnWithin,
  method,
  methodWithin,
} from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import {
  isList,
  type MapValue,
  toJson,
  toText,
  type Value,
  type ValueInput,
  valueOfJson,
} from '../expression/value.ts'

/** With its padding, and without the line breaks that Go's decoder skips. */
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/
/** To read a byte that is not ASCII, and to write a character as three. */
const OTHER_BYTE_STEPS = 0.2
const ESCAPE_STEPS = 0.3
/** Characters of a URL: a request head is not longer either. */
const MAX_URL = 65_536

/** Steps for each character of a host in another script, or of a user with characters to escape. */
const HOST_STEPS = 3
const OTHER_SCRIPT = /[^\0-\x7f]|%|xn--|@[\s\S]*@/i
/** Place of a possible host: up to the part after the first slashes, as tolerant as the parser. */
const HOST = /^[^/\\?#]*[/\\]*[^/\\?#]*/

/** Base64, JSON, query strings and URLs. */
export const ENCODING_FUNCTIONS: readonly ExpressionFunction[] = [
  fn('base64.encode', ['bytes'], 'string', (bytes) => Buffer.from(bytes).toString('base64')),
  fn('base64.decode', ['string'], 'bytes', (text) => decodeBase64(text)),
  method('encodeBase64', ['string'], 'string', (text) => Buffer.from(text).toString('base64')),
  methodWithin('decodeBase64', ['string'], 'string', (evaluation, text) => {
    const bytes = decodeBase64(text)
    if (!isAscii(bytes)) evaluation.spend(OTHER_BYTE_STEPS * bytes.length)
    return bytes.toString()
  }),
  fn('basic_auth.encode', ['string', 'string'], 'string', (user, password) => {
    return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
  }),

  fnWithin('json.decode', ['string'], 'dyn', decodeJson),
  methodWithin('decodeJson', ['string'], 'dyn', decodeJson),
  methodWithin('isJson', ['string'], 'bool', isJson),
  fn('json.encode', ['dyn'], 'string', encodeJson),
  method('encodeJson', ['list'], 'string', encodeJson),
  method('encodeJson', ['map'], 'string', encodeJson),

  fn('queryString.decode', ['string'], 'map(list(string))', parseQuery),
  method('decodeQueryString', ['string'], 'map(list(string))', parseQuery),
  fn('queryString.encode', ['map'], 'string', encodeQuery),
  method('encodeQueryString', ['map'], 'string', encodeQuery),
  method(
    'isQueryString',
    ['string'],
    'bool',
    (text) => /^[^\s#?]*$/.test(text) && canUnescape(text),
  ),

  fnWithin('url.parse', ['string'], 'map', parseUrl),
  methodWithin('parseUrl', ['string'], 'map', parseUrl),
  fnWithin('url.escape', ['string'], 'string', escapeUrl),
  methodWithin('escapeUrl', ['string'], 'string', escapeUrl),
  fn('url.unescape', ['string'], 'string', unescapeUrl),
  method('unescapeUrl', ['string'], 'string', unescapeUrl),
  methodWithin('isURL', ['string'], 'bool', isUrl),
]

function decodeBase64(text: string): Buffer {
  const plain = text.replace(/[\r\n]/g, '')
  if (plain.length % 4 !== 0 || !BASE64.test(plain))
    throw new EvaluationError('the string is not base64')
  return Buffer.from(text, 'base64')
}

function decodeJson(evaluation: Evaluation, text: string): ValueInput {
  evaluation.spend(jsonSteps(text))
  try {
    return valueOfJson(JSON.parse(text))
  } catch {
    throw new EvaluationError('the string is not JSON')
  }
}

function isJson(evaluation: Evaluation, text: string): boolean {
  evaluation.spend(jsonSteps(text))
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

function encodeJson(value: Value): string {
  return JSON.stringify(toJson(value))
}

function encodeQuery(map: MapValue): string {
  const query = new URLSearchParams()
  for (const [key, value] of map) {
    for (const item of isList(value) ? value : [value]) query.append(toText(key), toText(item))
  }
  return query.toString()
}

/** The fields of Go's `url.URL`, in lower case, and the query as a map. */
function parseUrl(evaluation: Evaluation, text: string): ValueInput {
  if (!isUrl(evaluation, text)) throw new EvaluationError('the string is not a URL')
  const url = new URL(text)
  return {
    scheme: url.protocol.slice(0, -1),
    user: url.username,
    host: url.host,
    hostname: url.hostname,
    port: url.port,
    path: canUnescape(url.pathname) ? decodeURIComponent(url.pathname) : url.pathname,
    raw_path: url.pathname,
    raw_query: url.search.slice(1),
    query: parseQuery(url.search.slice(1)),
    fragment: url.hash.slice(1),
  }
}

function isUrl(evaluation: Evaluation, text: string): boolean {
  if (text.length > MAX_URL || !text.includes(':')) return false
  // The parser ignores these characters everywhere.
  const [start = ''] = HOST.exec(text.replace(/[\t\n\r]/g, '')) ?? []
  if (OTHER_SCRIPT.test(start)) evaluation.spend(HOST_STEPS * start.length)
  return URL.canParse(text)
}

function escapeUrl(evaluation: Evaluation, text: string): string {
  let escapes = 0
  for (let at = 0; at < text.length; at += 1) escapes += isUnreserved(text.charCodeAt(at)) ? 0 : 1
  evaluation.spend(ESCAPE_STEPS * escapes)
  return encodeURIComponent(text)
}

/** Letters, digits and similar characters that need no encoding. */
const isUnreserved = (code: number) =>
  (code >= 0x61 && code <= 0x7a) || (code >= 0x27 && code <= 0x39) || (code >= 0x41 && code <= 0x5a)

function canUnescape(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

function unescapeUrl(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new EvaluationError('the string has an invalid percent escape')
  }
}
