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
export function xxhash64(bytes: Buffer): Buffer {
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
