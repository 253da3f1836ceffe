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
export function crc64(bytes: Buffer): Buffer {
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
