import { parseQuery } from '../exchange/parsed-fields.ts'
import type { Evaluation } from '../expression/evaluation.ts'
import { EvaluationError } from '../expression/evaluation-error.ts'
import {
  type ExpressionFunction,
  fn,
  fnWithin,
  method,
  methodWithin,
} from '../expression/expression-function.ts'
import {
  fromJson,
  isList,
  type MapValue,
  toJson,
  toText,
  type Value,
  type ValueInput,
} from '../expression/value.ts'

/** With its padding, and without the line breaks that Go's decoder skips. */
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** What a host in another script takes, for each character. */
const HOST_STEPS = 3
const OTHER_SCRIPT = /[^\0-\x7f]|xn--/i

/** Base64, JSON, query strings and URLs. */
export const ENCODING_FUNCTIONS: readonly ExpressionFunction[] = [
  fn('base64.encode', ['bytes'], 'string', (bytes) => Buffer.from(bytes).toString('base64')),
  fn('base64.decode', ['string'], 'bytes', (text) => decodeBase64(text)),
  method('encodeBase64', ['string'], 'string', (text) => Buffer.from(text).toString('base64')),
  method('decodeBase64', ['string'], 'string', (text) => decodeBase64(text).toString()),
  fn('basic_auth.encode', ['string', 'string'], 'string', (user, password) => {
    return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
  }),

  fn('json.decode', ['string'], 'dyn', decodeJson),
  method('decodeJson', ['string'], 'dyn', decodeJson),
  method('isJson', ['string'], 'bool', isJson),
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
  fn('url.escape', ['string'], 'string', encodeURIComponent),
  method('escapeUrl', ['string'], 'string', encodeURIComponent),
  fn('url.unescape', ['string'], 'string', unescapeUrl),
  method('unescapeUrl', ['string'], 'string', unescapeUrl),
  methodWithin('isURL', ['string'], 'bool', isUrl),
]

function decodeBase64(text: string): Buffer {
  if (!BASE64.test(text.replace(/[\r\n]/g, ''))) throw new EvaluationError('the text is not base64')
  return Buffer.from(text, 'base64')
}

function decodeJson(text: string): ValueInput {
  try {
    return fromJson(JSON.parse(text))
  } catch {
    throw new EvaluationError('the text is not JSON')
  }
}

function isJson(text: string): boolean {
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
  if (!isUrl(evaluation, text)) throw new EvaluationError('the text is not a URL')
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
  if (OTHER_SCRIPT.test(text)) evaluation.spend(HOST_STEPS * text.length)
  return URL.canParse(text)
}

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
    throw new EvaluationError('the text has a bad percent escape')
  }
}
