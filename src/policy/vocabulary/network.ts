import { randomInt } from 'node:crypto'
import { parseAddress } from '../../base/net/network.ts'
import type { Evaluation } from '../expression/evaluation.ts'
import {
  type ExpressionFunction,
  fn,
  fnWithin,
  methodWithin,
} from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'

/** Steps to find an address in a range: IPv4, IPv6. */
const ADDRESS_STEPS = [32, 330] as const
/** Longest text of an address or range. */
const MAX_LENGTH = 64
/** RFC 1918, as the service has it: IPv4 alone. */
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16']

/** Addresses and chance. */
export const NETWORK_FUNCTIONS: readonly ExpressionFunction[] = [
  fnWithin('inCidrRange', ['string', 'string'], 'bool', inRange),
  fnWithin('inCidrRanges', ['string', 'list'], 'bool', (evaluation, ip, ranges) => {
    return Array.from(ranges).some(
      (range) => typeof range === 'string' && inRange(evaluation, ip, range),
    )
  }),
  methodWithin('isPrivateIp', ['string'], 'bool', (evaluation, ip) =>
    PRIVATE.some((range) => inRange(evaluation, ip, range)),
  ),

  fn('rand.double', [], 'double', () => Math.random()),
  fn('rand.int', [], 'int', () => BigInt(randomInt(2))),
  fn('rand.int', ['int', 'int'], 'int', (from, to) => {
    const [least, most] = from < to ? [from, to] : [to, from]
    // The generator takes ranges below 2^48.
    if (least < 0n || most - least >= 1n << 48n || most > BigInt(Number.MAX_SAFE_INTEGER)) {
      throw new EvaluationError('rand.int accepts integers from 0 to 2^48')
    }
    return BigInt(randomInt(Number(least), Number(most) + 1))
  }),
]

/** False when one of them cannot be read. */
function inRange(evaluation: Evaluation, ip: string, range: string): boolean {
  const isShort = ip.length <= MAX_LENGTH && range.length <= MAX_LENGTH
  evaluation.spend(ADDRESS_STEPS[isShort && ip.includes(':') ? 1 : 0])
  if (!isShort) return false
  const address = parseAddress(ip)
  if (address === undefined) return false
  return evaluation.ranges.get(range)?.contains(address) ?? false
}
