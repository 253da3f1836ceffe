import { isUtf8 } from 'node:buffer'
import process from 'node:process'
import * as z from 'zod'
import type {
  Fields,
  RecordedBody,
  RecordedExchange,
} from '../../agent/inspection/recorded-exchange.ts'
import { maskedAddresses, maskedBody, maskedValue } from '../../base/masked-text.ts'
import { IsoTime, isoTime } from '../iso-time.ts'

/** Largest decompressed body. A larger body is shown as its compressed bytes. */
const MAX_TEXT_BYTES = 512 * 1024

const BodyView = z.strictObject({
  bytes: z.int().describe('length in bytes'),
  is_whole: z.boolean().describe('false: only the beginning was recorded'),
  text: z
    .string()
    .nullable()
    .describe('recorded body if it is UTF-8, decompressed; secret values are [secret]'),
  base64: z.string().nullable().describe('recorded body if it is not UTF-8'),
})
const FieldsView = z
  .array(z.strictObject({ name: z.string(), value: z.string() }))
  .describe('in original order; secret values are [secret]')

/** One exchange as a line of a list. */
export const ExchangeLineView = z.strictObject({
  number: z.int().describe('consecutive number since the start of the inspection'),
  started_at: IsoTime,
  state: z
    .enum(['open', 'answered', 'switched', 'failed'])
    .describe('switched: a WebSocket or other upgraded connection, passed through'),
  method: z.string(),
  target: z.string().describe('path and query; secret parameters are [secret]'),
  status: z.int().nullable(),
  duration_ms: z.number().nullable(),
  request_bytes: z.int(),
  response_bytes: z.int().nullable(),
  error: z.string().nullable(),
  replay_of: z.int().nullable().describe('number of the original exchange of a replay'),
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
    target: maskedAddresses(request.target),
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
      body: bodyView(request.body, request.fields),
    },
    response: response
      ? {
          http_version: response.httpVersion,
          reason: response.reason,
          fields: maskedFields(response.fields),
          body: bodyView(response.body, response.fields),
        }
      : null,
  }
}

function maskedFields(fields: Fields): z.infer<typeof FieldsView> {
  return fields.map(([name, value]) => ({ name, value: maskedValue(name, value) }))
}

function bodyView(
  { bytes, totalBytes, isWhole }: RecordedBody,
  fields: Fields,
): z.infer<typeof BodyView> {
  const plain = decompressed(bytes, fieldOf(fields, 'content-encoding').toLowerCase())
  const text = textOf(plain, isWhole)
  const type = fieldOf(fields, 'content-type')
  return {
    bytes: totalBytes,
    is_whole: isWhole,
    text: text === undefined ? null : maskedBody(text, type),
    base64: text === undefined ? maskedBytes(bytes, type).toString('base64') : null,
  }
}

/** A form with a file in it, or a text that is not UTF-8: its fields are masked, its bytes stay. */
function maskedBytes(bytes: Buffer, type: string): Buffer {
  if (!/^(?:multipart|text)\/|json|xml|yaml|x-www-form-urlencoded/i.test(type)) return bytes
  return Buffer.from(maskedBody(bytes.toString('latin1'), type), 'latin1')
}

function fieldOf(fields: Fields, wanted: string): string {
  return fields.find(([name]) => name.toLowerCase() === wanted)?.[1].trim() ?? ''
}

/** Decompresses as far as possible: the end may be missing. Data in another format is returned unchanged. */
function decompressed(bytes: Buffer, encoding: string): Buffer {
  // Loaded at the first use: loading takes 2 ms at each start.
  const zlib = process.getBuiltinModule('node:zlib')
  const { Z_SYNC_FLUSH: soFar, BROTLI_OPERATION_FLUSH: soFarBrotli } = zlib.constants
  const maxOutputLength = MAX_TEXT_BYTES
  try {
    if (/^(?:x-)?gzip$/.test(encoding)) {
      return zlib.gunzipSync(bytes, { finishFlush: soFar, maxOutputLength })
    }
    if (encoding === 'deflate')
      return zlib.inflateSync(bytes, { finishFlush: soFar, maxOutputLength })
    if (encoding === 'br') {
      return zlib.brotliDecompressSync(bytes, { finishFlush: soFarBrotli, maxOutputLength })
    }
  } catch {
    // Shown as bytes.
  }
  return bytes
}

/** A cut body may end inside a character. */
function textOf(bytes: Buffer, isWhole: boolean): string | undefined {
  for (let cut = 0; cut <= (isWhole ? 0 : 3); cut += 1) {
    const part = bytes.subarray(0, bytes.length - cut)
    if (isUtf8(part) && !part.includes(0)) return part.toString()
  }
  return undefined
}
