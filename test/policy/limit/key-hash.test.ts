import { describe, expect, it } from 'vitest'
import { KeyHash } from '../../../src/policy/limit/key-hash.ts'

const KEY = Buffer.from([0, 1, 2, 3, 4, 5, 6, 7])

/** HalfSipHash with 64 bits of output, byte by byte, with c rounds for each word and d at the end. */
function halfSipHash(bytes: Buffer, key: Buffer, c: number, d: number, final = 0xee): string {
  const [k0, k1] = [key.readInt32LE(0), key.readInt32LE(4)]
  const v = [k0, k1 ^ 0xee, 0x6c796765 ^ k0, 0x74656462 ^ k1]
  const at = (index: number) => v[index] as number
  const rotate = (value: number, by: number) => (value << by) | (value >>> (32 - by))
  const mix = (a: number, b: number, by: number) => {
    v[a] = (at(a) + at(b)) | 0
    v[b] = rotate(at(b), by) ^ at(a)
  }
  const round = () => {
    mix(0, 1, 5)
    v[0] = rotate(at(0), 16)
    mix(2, 3, 8)
    mix(0, 3, 7)
    mix(2, 1, 13)
    v[2] = rotate(at(2), 16)
  }
  const rounds = (count: number) => {
    for (let done = 0; done < count; done += 1) round()
  }
  const absorb = (word: number) => {
    v[3] = at(3) ^ word
    rounds(c)
    v[0] = at(0) ^ word
  }
  const whole = bytes.length & ~3
  for (let offset = 0; offset < whole; offset += 4) absorb(bytes.readInt32LE(offset))
  const last = Buffer.alloc(4)
  bytes.copy(last, 0, whole)
  last[3] = bytes.length & 0xff
  absorb(last.readInt32LE(0))
  const digest = Buffer.alloc(8)
  v[2] = at(2) ^ final
  rounds(d)
  digest.writeInt32LE(at(1) ^ at(3), 0)
  v[1] = at(1) ^ 0xdd
  rounds(d)
  digest.writeInt32LE(at(1) ^ at(3), 4)
  return digest.toString('hex')
}

function hash(text: string, key = KEY): string {
  const keyHash = new KeyHash(key)
  keyHash.hash(text)
  const digest = Buffer.alloc(8)
  digest.writeInt32LE(keyHash.low, 0)
  digest.writeInt32LE(keyHash.high, 4)
  return digest.toString('hex')
}

describe('KeyHash', () => {
  it('has a yardstick that agrees with the published vectors of HalfSipHash-2-4', () => {
    expect(halfSipHash(Buffer.alloc(0), KEY, 2, 4)).toBe('218d1f59b9b83cc8')
    expect(halfSipHash(Buffer.from([0]), KEY, 2, 4)).toBe('be552412f8387315')
  })

  it.each(['', 'a', 'ab', 'abc', 'abcd', '203.0.113.9', '2001:db8::1', 'ÿþ', 'x'.repeat(300)])(
    'equals HalfSipHash-1-3 of %j',
    (text) => {
      expect(hash(text)).toBe(halfSipHash(Buffer.from(text, 'latin1'), KEY, 1, 3))
    },
  )

  it.each(['€', 'ab€', 'abcd€', '€abcd', 'abcd€fgh', '日本語のキー'])(
    'hashes %j as UTF-8, with a constant of its own',
    (text) => {
      expect(hash(text)).toBe(halfSipHash(Buffer.from(text), KEY, 1, 3, 0xef))
    },
  )

  it('never gives a text in another script the hash of a Latin-1 text', () => {
    const encoded = Buffer.from('€').toString('latin1')
    expect(hash('€')).not.toBe(hash(encoded))
    expect(hash('€')).not.toBe(hash('£'))
  })

  it('depends on its key', () => {
    expect(hash('a', Buffer.alloc(8, 1))).not.toBe(hash('a', Buffer.alloc(8, 2)))
  })

  it('draws a key of its own', () => {
    const [one, two] = [new KeyHash(), new KeyHash()]
    one.hash('a')
    two.hash('a')
    expect([one.low, one.high]).not.toEqual([two.low, two.high])
  })
})
