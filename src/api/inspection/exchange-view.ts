import { isUtf8 } from 'node:buffer'
import * as z from 'zod'
import type {
  Fields,
  RecordedBody,
  RecordedExchange,
} from '../../agent/inspection/recorded-exchange.ts'
import { isSecretName } from '../../base/log/secret-name.ts'
import { IsoTime, isoTime } from '../iso-time.ts'

const MASK = '[secret]'

const BodyView = z.strictObject({
  bytes: z.int().describe('how long it was'),
  is_whole: z.boolean().describe('false: only its beginning was kept'),
  text: z.string().nullable().describe('what was kept, where that is UTF-8'),
  base64: z.string().nullable().describe('what was kept, where it is not'),
})
const FieldsView = z
  .array(z.strictObject({ name: z.string(), value: z.string() }))
  .describe('in their order; values of secret ones are [secret]')

/** One exchange as a line of a list. */
export const ExchangeLineView = z.strictObject({
  number: z.int().describe('counts up by one, from the start of the inspection'),
  started_at: IsoTime,
  state: z
    .enum(['open', 'answered', 'switched', 'failed'])
    .describe('switched: a WebSocket or its like, which is passed through'),
  method: z.string(),
  target: z.string().describe('path and query; values of secret parameters are [secret]'),
  status: z.int().nullable(),
  duration_ms: z.number().nullable(),
  request_bytes: z.int(),
  response_bytes: z.int().nullable(),
  error: z.string().nullable(),
  replay_of: z.int().nullable().describe('the number of the exchange that was sent again'),
})

/** The same with heads and bodies. */
export const ExchangeView = ExchangeLineView.extend({
  request: z.strictObject({ http_version: z.string(), fields: FieldsView, body: BodyView }),
  response: z
    .strictObject({
      http_version: z.string(),
      reason: z.string(),
      fields: FieldsView,
      body: BodyView,
    })
    .nullable(),
})

export function exchangeLine(exchange: RecordedExchange): z.infer<typeof ExchangeLineView> {
  const { number, startedAt, state, request, response, durationMs, error, replayOf } = exchange
  return {
    number,
    started_at: isoTime(startedAt),
    state,
    method: request.method,
    target: maskedTarget(request.target),
    status: response?.status ?? null,
    duration_ms: durationMs ?? null,
    request_bytes: request.body.totalBytes,
    response_bytes: response?.body.totalBytes ?? null,
    error: error ?? null,
    replay_of: replayOf ?? null,
  }
}

export function exchangeView(exchange: RecordedExchange): z.infer<typeof ExchangeView> {
  const { request, response } = exchange
  return {
    ...exchangeLine(exchange),
    request: {
      http_version: request.httpVersion,
      fields: maskedFields(request.fields),
      body: bodyView(request.body),
    },
    response: response
      ? {
          http_version: response.httpVersion,
          reason: response.reason,
          fields: maskedFields(response.fields),
          body: bodyView(response.body),
        }
      : null,
  }
}

/** Values of a query whose names are those of secrets; what cannot be decoded is taken as it is. */
export function maskedTarget(target: string): string {
  const at = target.indexOf('?')
  if (at < 0) return target
  const pairs = target.slice(at + 1).split('&')
  const masked = pairs.map((pair) => {
    const [name = ''] = pair.split('=', 1)
    return pair.includes('=') && isSecretName(decoded(name)) ? `${name}=${MASK}` : pair
  })
  return `${target.slice(0, at)}?${masked.join('&')}`
}

function maskedFields(fields: Fields): z.infer<typeof FieldsView> {
  return fields.map(([name, value]) => ({ name, value: maskedValue(name, value) }))
}

function maskedValue(name: string, value: string): string {
  if (isSecretName(name)) return MASK
  // They carry addresses, and those may carry tokens.
  return /^(?:location|referer|content-location|link|x-original-ur[il])$/i.test(name)
    ? value.replace(/\?[^\s#<>"]*/g, (query) => maskedTarget(query))
    : value
}

function bodyView(body: RecordedBody): z.infer<typeof BodyView> {
  const { bytes, totalBytes, isWhole } = body
  const text = textOf(bytes, isWhole)
  return {
    bytes: totalBytes,
    is_whole: isWhole,
    text: text ?? null,
    base64: text === undefined ? bytes.toString('base64') : null,
  }
}

/** Where a body was cut, a character may be, too. */
function textOf(bytes: Buffer, isWhole: boolean): string | undefined {
  for (let cut = 0; cut <= (isWhole ? 0 : 3); cut += 1) {
    const part = bytes.subarray(0, bytes.length - cut)
    if (isUtf8(part) && !part.includes(0)) return part.toString()
  }
  return undefined
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll('+', ' '))
  } catch {
    return name
  }
}
