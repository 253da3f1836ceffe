import type { OutgoingHttpHeaders } from 'node:http'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { request as send } from '../../base/net/node-http.ts'
import type { ExchangeLog, Fields, RecordedExchange } from './recorded-exchange.ts'

/** Time limit for the whole exchange. */
const WITHIN_MS = 30_000
/** Hop-by-hop fields (RFC 9110 section 7.6.1), and `content-length`, which is set again. */
const OF_THE_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'content-length',
  'expect',
  'te',
  'trailer',
  'upgrade',
])

export interface ReplayOptions {
  readonly seen: RecordedExchange
  readonly exchanges: ExchangeLog
  readonly upstream: URL
  readonly clock: Clock
}

/** Sends a request again unchanged, and records the exchange. */
export async function replay(options: ReplayOptions): Promise<RecordedExchange> {
  const { seen, exchanges, clock } = options
  const { request } = seen
  if (!request.body.isWhole) {
    const detail =
      'Only the beginning of the body was recorded, so the request cannot be sent again.'
    throw new AppError('not-replayable', detail)
  }
  if (seen.state === 'switched' || seen.state === 'open') {
    throw new AppError(
      'not-replayable',
      'A WebSocket or other upgraded connection cannot be sent again.',
    )
  }
  const fields = withoutHop(request.fields)
  const { method, target, httpVersion } = request
  const { number } = exchanges.begin({
    startedAt: clock.now(),
    replayOf: seen.number,
    request: { method, target, httpVersion, fields },
  })
  const body = request.body.bytes
  exchanges.find(number)?.request.body.add(body)
  const startedAt = clock.monotonic()
  const error = await exchange(options, number, fields, body)
  const durationMs = Math.round(clock.monotonic() - startedAt)
  exchanges.change(number, { durationMs, state: error ? 'failed' : 'answered', error })
  const made = exchanges.find(number)
  if (!made) throw new Error('replaced by a newer exchange')
  return made
}

/** Resolves with the error, or undefined on success. */
function exchange(
  { seen, exchanges, upstream }: ReplayOptions,
  number: number,
  fields: Fields,
  body: Buffer,
): Promise<string | undefined> {
  const { method, target } = seen.request
  const headers = [...fields, ...(body.length > 0 ? [['content-length', String(body.length)]] : [])]
  return new Promise((resolve) => {
    const sent = send(
      {
        host: upstream.hostname.replace(/^\[|\]$/g, ''),
        port: upstream.port,
        method,
        path: target,
        headers: headers.flat() as unknown as OutgoingHttpHeaders,
        setHost: false,
        agent: false,
        insecureHTTPParser: true,
        signal: AbortSignal.timeout(WITHIN_MS),
      },
      (answer) => {
        const { statusCode = 0, statusMessage = '', httpVersion, rawHeaders } = answer
        const response = {
          status: statusCode,
          reason: statusMessage,
          httpVersion,
          fields: pairs(rawHeaders),
          body: exchanges.bodyOf(number),
        }
        exchanges.change(number, { response })
        answer.on('data', (chunk: Buffer) => response.body.add(chunk))
        answer.on('end', () => resolve(undefined))
        answer.on('error', (error) => resolve(error.message))
      },
    )
    sent.on('error', (error) => resolve(error.message))
    sent.end(body)
  })
}

function withoutHop(fields: Fields): Fields {
  return fields.filter(([name]) => !OF_THE_HOP.has(name.toLowerCase()))
}

function pairs(raw: readonly string[]): Fields {
  return Array.from({ length: raw.length / 2 }, (_, at) => [
    raw[at * 2] ?? '',
    raw[at * 2 + 1] ?? '',
  ])
}
