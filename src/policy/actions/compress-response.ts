import type { Transform } from 'node:stream'
import { constants, createBrotliCompress, createDeflate, createGzip } from 'node:zlib'
import * as z from 'zod'
import type { HeaderList } from '../exchange/header-list.ts'
import { hasWholeBody, requestOf, responseOf } from '../exchange/message-head.ts'
import { CONTINUE } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { RESPONSE_PHASE } from '../phase.ts'
import { defineAction } from './action.ts'

const ALGORITHMS = ['gzip', 'deflate', 'br', 'compress'] as const
type Algorithm = (typeof ALGORITHMS)[number]

/** Quality 4 costs about as much as gzip; the default of 11 is for files that are kept. */
const BROTLI_QUALITY = 4
/** log2 of the bytes that it looks back: less than a megabyte for a response; by default it is 9. */
const BROTLI_WINDOW = 16
/** Responses that one action compresses at once. Further responses are sent uncompressed. */
const MAX_AT_ONCE = 64
const NO_TRANSFORM = /(?:^|,)\s*no-transform\s*(?:,|$)/i

/** Each write is flushed, so that events reach the client when they happen. */
const COMPRESSORS: Partial<Record<Algorithm, () => Transform>> = {
  gzip: () => createGzip({ flush: constants.Z_SYNC_FLUSH }),
  deflate: () => createDeflate({ flush: constants.Z_SYNC_FLUSH }),
  br: () =>
    createBrotliCompress({
      flush: constants.BROTLI_OPERATION_FLUSH,
      params: {
        [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY,
        [constants.BROTLI_PARAM_LGWIN]: BROTLI_WINDOW,
      },
    }),
}

const config = z.strictObject({
  algorithms: z
    .array(z.enum(ALGORITHMS))
    .min(1)
    .default([...ALGORITHMS]),
})

/**
 * Compresses responses that the upstream sent uncompressed, with the encoding that the client prefers.
 * Responses stay unchanged if either side forbids it (RFC 9111 5.2.1.6 and 5.2.2.6).
 */
export const compressResponse = defineAction({
  type: 'compress-response',
  namespace: 'compress',
  phases: RESPONSE_PHASE,
  config,
  fields: {
    algorithms:
      'Allowed encodings. The client decides; the earlier one wins if it has no preference. compress is accepted, but never used.',
  },
  example: { algorithms: ['br', 'gzip'] },
  results: { already_compressed: 'bool', negotiated_algorithm: 'string' },
  neverEnds: true,
  build({ algorithms }, context) {
    const isMended = algorithms.some((_, index) => context.isMended(['algorithms', index]))
    if (!isMended && new Set(algorithms).size < algorithms.length) {
      context.problem('compressAlgorithm', ['algorithms'], 'An algorithm is listed twice.')
    }
    const running = context.carry(() => new Set<Transform>())
    return (exchange) => {
      const { headers } = responseOf(exchange)
      const isEncoded = headers.has('content-encoding')
      const accepted = requestOf(exchange).headers.all('accept-encoding').join(',')
      const isWanted = !isEncoded && hasWholeBody(exchange) && !mustStay(exchange)
      const algorithm =
        isWanted && running.size < MAX_AT_ONCE ? negotiate(accepted, algorithms) : undefined
      exchange.results.set('compress', {
        already_compressed: isEncoded,
        negotiated_algorithm: algorithm ?? '',
      })
      const create = algorithm && COMPRESSORS[algorithm]
      if (!algorithm || !create) return CONTINUE
      headers.set('content-encoding', algorithm)
      headers.remove('content-length')
      varyOnEncoding(headers)
      weakenTag(headers)
      exchange.transformResponse({ isWhole: false, create: () => follow(create(), running) })
      return CONTINUE
    }
  },
})

function mustStay(exchange: PolicyExchange): boolean {
  const fields = [responseOf(exchange), requestOf(exchange)].flatMap(({ headers }) =>
    headers.all('cache-control'),
  )
  return fields.some((value) => NO_TRANSFORM.test(value))
}

/** Counts a compressor for as long as it holds memory. */
function follow(compressor: Transform, running: Set<Transform>): Transform {
  running.add(compressor)
  return compressor.once('close', () => running.delete(compressor))
}

/** The best of the allowed algorithms by quality (RFC 9110 12.5.3), the earlier one of equals. */
function negotiate(field: string, allowed: readonly Algorithm[]): Algorithm | undefined {
  const qualities = new Map<string, number>()
  for (const item of field.split(',')) {
    const [name = '', ...parameters] = item.split(';').map((part) => part.trim().toLowerCase())
    const quality = parameters.find((part) => part.startsWith('q='))?.slice(2)
    if (name !== '') qualities.set(name, quality === undefined ? 1 : Number(quality) || 0)
  }
  let best: Algorithm | undefined
  let bestQuality = 0
  for (const algorithm of allowed) {
    if (!COMPRESSORS[algorithm]) continue
    const quality = qualities.get(algorithm) ?? qualities.get('*') ?? 0
    if (quality > bestQuality) {
      best = algorithm
      bestQuality = quality
    }
  }
  return best
}

function varyOnEncoding(headers: HeaderList): void {
  const varies = headers
    .all('vary')
    .some((value) => /(?:^|,)\s*(?:\*|accept-encoding)\s*(?:,|$)/i.test(value))
  if (!varies) headers.append('vary', 'Accept-Encoding')
}

/** Other bytes, same meaning: a strong validator would be wrong (RFC 9110 8.8.3). */
function weakenTag(headers: HeaderList): void {
  const tag = headers.get('etag')
  if (tag?.startsWith('"')) headers.set('etag', `W/${tag}`)
}
