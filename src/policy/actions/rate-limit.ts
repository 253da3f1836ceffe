import * as z from 'zod'
import { durationMs, listOf, problem } from '../document/read-config.ts'
import { requestOf } from '../exchange/message-head.ts'
import { CLOSE, CONTINUE, NO_ERROR, type Outcome, respond } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { plainValues } from '../exchange/request-path.ts'
import type { Price } from '../expression/account.ts'
import type { CompiledExpression } from '../expression/compiled-expression.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { type Node, pathOf, textOf } from '../expression/expression-tree.ts'
import { isList, toText } from '../expression/value.ts'
import { RateLimiter } from '../limit/rate-limiter.ts'
import { PHASES } from '../phase.ts'
import { lookUp } from '../vocabulary/requests.ts'
import { defineAction } from './action.ts'

const MAX_CAPACITY = 2_000_000_000
const MAX_NAME = 1_023
const MAX_KEYS = 10
const STEP_MS = 10_000
/** Price of a key: it is composed and hashed. */
const KEY_PRICE: Price = { call: 6, kib: 100 }

const config = z.strictObject({
  name: z.string().max(MAX_NAME),
  algorithm: z.literal('sliding_window'),
  capacity: z.int().min(1).max(MAX_CAPACITY),
  rate: durationMs('60s', '24h').refine(
    (ms) => ms % STEP_MS === 0,
    problem('badDuration', 'rate must be a multiple of ten seconds.'),
  ),
  bucket_key: listOf(z.string().min(1), MAX_KEYS),
  enforce: z.boolean().default(true),
})

/** Admits at most `capacity` requests, or connections, of each bucket in any window of `rate`. */
export const rateLimit = defineAction({
  type: 'rate-limit',
  phases: PHASES,
  config,
  fields: {
    name: 'Name of the limit, for people.',
    algorithm: 'Way of counting.',
    capacity: 'Most requests, or connections, in any period of the length rate.',
    rate: 'Length of the period: 60s to 24h, in steps of 10s.',
    bucket_key: 'Expressions. Requests with the same values share a limit.',
    enforce: 'false: counts and sets the result limited, and refuses nothing.',
  },
  example: {
    name: '30 a minute',
    algorithm: 'sliding_window',
    capacity: 30,
    rate: '60s',
    bucket_key: ['conn.client_ip'],
    enforce: true,
  },
  results: {
    bucket_key: 'string',
    limited: 'bool',
    'error.code': 'string',
    'error.message': 'string',
  },
  build({ name, capacity, rate: windowMs, bucket_key: keys, enforce }, context) {
    const parts = keys.flatMap((source, index) => {
      const expression = context.expression(source, ['bucket_key', index])
      return expression ? keyReader(expression) : []
    })
    const { clock, limits } = context
    const limiter = context.carry(
      () =>
        new RateLimiter({ capacity, windowMs, clock, maxBuckets: limits.maxKeys, tables: limits }),
    )
    const readKey = joinKeys(parts)
    return (exchange) => {
      const { results, connection, endpoint } = exchange
      try {
        exchange.countedIp = limits.countedIp(connection.clientIp)
        const key = readKey(exchange)
        exchange.account.pay(KEY_PRICE, [key])
        const sharedBefore = limiter.shared
        const waitMs = limiter.tryCount(key, connection.clientIp)
        const limited = waitMs > 0
        if (limiter.shared > sharedBefore) {
          const where = { endpoint: endpoint.id, limit: name, client: connection.clientIp }
          limits.count({ ...where, isRefused: limited })
        }
        results.set('rate_limit', { bucket_key: key, limited, error: NO_ERROR })
        if (!limited || !enforce) return CONTINUE
        return context.phase === 'on_tcp_connect' ? CLOSE : tooMany(waitMs)
      } catch (error) {
        if (!(error instanceof EvaluationError)) throw error
        const reported = { code: 'ERR_NGROK_2254', message: error.message }
        results.set('rate_limit', { bucket_key: '', limited: false, error: reported })
        if (enforce) throw error
        return CONTINUE
      } finally {
        exchange.countedIp = undefined
      }
    }
  },
})

function tooMany(waitMs: number): Outcome {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000))
  const sentence = `Too many requests. Try again in ${seconds} s.`
  return respond({
    status: 429,
    headers: ['retry-after', String(seconds), 'content-type', 'text/plain; charset=utf-8'],
    body: `${sentence}\n`,
    sentence,
  })
}

type KeyReader = (exchange: PolicyExchange) => string

/**
 * A key part that equals the client's address is reduced to its network: a client can choose the rest of an
 * IPv6 address.
 */
function keyReader(expression: CompiledExpression<PolicyExchange>): KeyReader {
  const read = partReader(expression)
  return (exchange) => {
    const part = read(exchange)
    const { countedIp = part, connection } = exchange
    return part === connection.clientIp ? countedIp : part
  }
}

/** Reads the most common forms directly. Other expressions are evaluated. */
function partReader(expression: CompiledExpression<PolicyExchange>): KeyReader {
  const path = pathOf(expression.form)
  if (path === 'conn.client_ip') return ({ connection }) => connection.clientIp
  if (path === 'req.host') return (exchange) => requestOf(exchange).host
  const header = headerIn(expression.form)
  if (header === undefined) {
    return (exchange) => {
      const value = expression.evaluate(exchange)
      return isList(value) ? Array.from(value, toText).join(', ') : toText(value)
    }
  }
  return (exchange) => {
    const values = plainValues(header, requestOf(exchange).headers.all(header))
    return values.length === 1 ? (values[0] ?? '') : values.join(', ')
  }
}

/** The name in `req.headers['name']` or `getReqHeader('Name')`. */
function headerIn(node: Node): string | undefined {
  if (node.kind !== 'call' || node.target) return undefined
  const reads = node.name === lookUp('req.headers') || node.name === 'getReqHeader'
  return reads ? textOf(node.args[0]) : undefined
}

/**
 * A single part is the key itself. Several parts are joined with their lengths, so that no two lists give the
 * same key.
 */
function joinKeys(parts: readonly KeyReader[]): KeyReader {
  const [only] = parts
  if (only && parts.length === 1) return only
  return (exchange) => {
    let key = ''
    for (const part of parts) {
      const value = part(exchange)
      key += `${key === '' ? '' : ' '}${value.length}:${value}`
    }
    return key
  }
}
