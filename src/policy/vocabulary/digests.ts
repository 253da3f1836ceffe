import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { checked, type ExpressionFunction, fn, method } from '../expression/expression-function.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'

/** ISO 3309, reflected, as Go's `crc64.ISO`. */
const POLYNOMIAL = 0xd8000000

/** The upper halves of the table; with this polynomial the lower halves are 0. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let low = byte
  let high = 0
  for (let bit = 0; bit < 8; bit += 1) {
    const carry = low & 1
    low = (low >>> 1) | (high << 31)
    high = carry ? (high >>> 1) ^ POLYNOMIAL : high >>> 1
  }
  return high
})

/** CRC-64 (ISO 3309), big-endian. */
function crc64(bytes: Buffer): Buffer {
  let high = 0xffffffff
  let low = 0xffffffff
  for (const byte of bytes) {
    const entry = TABLE[(low ^ byte) & 0xff] as number
    low = (low >>> 8) | (high << 24)
    high = (high >>> 8) ^ entry
  }
  const digest = Buffer.alloc(8)
  digest.writeInt32BE(~high, 0)
  digest.writeInt32BE(~low, 4)
  return digest
}

const PRIME_1 = 0x9e3779b185ebca87n
const PRIME_2 = 0xc2b2ae3d27d4eb4fn
const PRIME_3 = 0x165667b19e3779f9n
const PRIME_4 = 0x85ebca77c2b2ae63n
const PRIME_5 = 0x27d4eb2f165667c5n

const wrap = (value: bigint) => BigInt.asUintN(64, value)
const rotate = (value: bigint, by: bigint) => wrap((value << by) | (value >> (64n - by)))
const round = (lane: bigint, input: bigint) =>
  wrap(rotate(wrap(lane + input * PRIME_2), 31n) * PRIME_1)
const merge = (hash: bigint, lane: bigint) => wrap((hash ^ round(0n, lane)) * PRIME_1 + PRIME_4)

/** XXH64 with seed 0, big-endian. */
function xxhash64(bytes: Buffer): Buffer {
  let at = 0
  let hash = PRIME_5
  if (bytes.length >= 32) {
    const lanes = [wrap(PRIME_1 + PRIME_2), PRIME_2, 0n, wrap(-PRIME_1)]
    for (; at + 32 <= bytes.length; at += 32) {
      for (const [lane, value] of lanes.entries()) {
        lanes[lane] = round(value, bytes.readBigUInt64LE(at + 8 * lane))
      }
    }
    const rotations = [1n, 7n, 12n, 18n]
    hash = wrap(lanes.reduce((sum, lane, index) => sum + rotate(lane, rotations[index] ?? 0n), 0n))
    for (const lane of lanes) hash = merge(hash, lane)
  }
  hash = wrap(hash + BigInt(bytes.length))
  for (; at + 8 <= bytes.length; at += 8) {
    hash ^= round(0n, bytes.readBigUInt64LE(at))
    hash = wrap(rotate(hash, 27n) * PRIME_1 + PRIME_4)
  }
  if (at + 4 <= bytes.length) {
    hash ^= wrap(BigInt(bytes.readUInt32LE(at)) * PRIME_1)
    hash = wrap(rotate(hash, 23n) * PRIME_2 + PRIME_3)
    at += 4
  }
  for (; at < bytes.length; at += 1) {
    hash ^= wrap(BigInt(bytes[at] ?? 0) * PRIME_5)
    hash = wrap(rotate(hash, 11n) * PRIME_1)
  }
  hash = wrap((hash ^ (hash >> 33n)) * PRIME_2)
  hash = wrap((hash ^ (hash >> 29n)) * PRIME_3)
  hash ^= hash >> 32n
  const digest = Buffer.alloc(8)
  digest.writeBigUInt64BE(hash)
  return digest
}

const FORMATS = "the encoding must be 'hex' or 'base64'"

const nodeDigest = (name: string) => (bytes: Buffer) => createHash(name).update(bytes).digest()

const DIGESTS: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  md5: nodeDigest('md5'),
  sha1: nodeDigest('sha1'),
  sha256: nodeDigest('sha256'),
  sha512: nodeDigest('sha512'),
  crc32: crc32Bytes,
  crc64,
  xxhash64,
}

/** `hash.sha256(text)`, `text.sha256()`, both with an optional `'hex'` or `'base64'`. */
export const DIGEST_FUNCTIONS: readonly ExpressionFunction[] = Object.entries(DIGESTS).flatMap(
  ([name, digest]) => {
    const run = (text: string, format = 'hex') => {
      if (format !== 'hex' && format !== 'base64') throw new EvaluationError(FORMATS)
      return digest(Buffer.from(text)).toString(format)
    }
    return [
      fn(`hash.${name}`, ['string'], 'string', run),
      checked(fn(`hash.${name}`, ['string', 'string'], 'string', run), checkFormat),
      method(name, ['string'], 'string', run),
      checked(method(name, ['string', 'string'], 'string', run), checkFormat),
    ]
  },
)

function checkFormat([, format]: readonly Node[]): string | undefined {
  const text = textOf(format)
  return text === undefined || text === 'hex' || text === 'base64' ? undefined : FORMATS
}

function crc32Bytes(bytes: Buffer): Buffer {
  const digest = Buffer.alloc(4)
  digest.writeUInt32BE(crc32(bytes))
  return digest
}
