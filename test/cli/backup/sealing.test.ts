import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { beforeAll, describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { isSealed, SEAL_START_BYTES, seal, unseal } from '../../../src/cli/backup/sealing.ts'

const PASSPHRASE = new Secret('correct horse battery')
/** The shipped cost takes a second for each key. */
const COST = { N: 16 }
const BOX = 65_536
const SEALED_BOX = BOX + 16
const HEADER = SEAL_START_BYTES + 16

async function* chunks(bytes: Buffer, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
const sealed = (bytes: Buffer, size = 10_007) =>
  buffer(Readable.from(seal(PASSPHRASE, COST)(chunks(bytes, size))))
const opened = (bytes: Buffer, passphrase = PASSPHRASE, size = 9_973) =>
  buffer(Readable.from(unseal(passphrase, COST)(chunks(bytes, size))))

describe('an encrypted backup', () => {
  const text = randomBytes(3 * BOX + 5)
  let file: Buffer
  beforeAll(async () => {
    file = await sealed(text)
  })

  it.each([0, 1, BOX - 1, BOX, BOX + 1, 2 * BOX])('opens to the same %i bytes', async (length) => {
    const bytes = randomBytes(length)
    const made = await sealed(bytes)
    expect(isSealed(made)).toBe(true)
    expect((await opened(made)).equals(bytes)).toBe(true)
  })

  it('has no text, and never the same bytes twice', async () => {
    const zeros = Buffer.alloc(2 * BOX)
    const [first, second] = await Promise.all([sealed(zeros), sealed(zeros)])
    expect(first.includes(Buffer.alloc(32))).toBe(false)
    expect(first.subarray(HEADER).equals(second.subarray(HEADER))).toBe(false)
    expect(first.subarray(HEADER, HEADER + 64)).not.toEqual(
      first.subarray(HEADER + SEALED_BOX, HEADER + SEALED_BOX + 64),
    )
  })

  it('refuses a wrong passphrase, and takes other code points of the same characters', async () => {
    await expect(opened(file, new Secret('correct horse batterz'))).rejects.toThrow(
      'The passphrase is wrong',
    )
    const composed = new Secret('caf\u00e9 caf\u00e9 caf\u00e9')
    const made = await buffer(Readable.from(seal(composed, COST)(chunks(text, BOX))))
    const decomposed = new Secret('cafe\u0301 cafe\u0301 cafe\u0301')
    expect((await opened(made, decomposed)).equals(text)).toBe(true)
  })

  it.each([
    ['at a border of boxes', HEADER + 2 * SEALED_BOX],
    ['to its first box', HEADER + SEALED_BOX],
    ['within a box', HEADER + SEALED_BOX + 100],
    ['before its last byte', -1],
    ['to its header', HEADER],
    ['within its header', HEADER - 1],
  ])('refuses a file that is cut %s', async (_where, end) => {
    await expect(opened(file.subarray(0, end))).rejects.toThrow(/incomplete/)
  })

  it('refuses boxes that are exchanged, repeated, left out or added', async () => {
    const at = (n: number) => file.subarray(HEADER + n * SEALED_BOX, HEADER + (n + 1) * SEALED_BOX)
    const header = file.subarray(0, HEADER)
    const last = at(3)
    for (const boxes of [
      [at(1), at(0), at(2), last],
      [at(0), at(0), at(2), last],
      [at(0), at(2), last],
      [at(0), at(1), last],
      [at(0), at(1), at(2), last, last],
      [last],
    ]) {
      await expect(opened(Buffer.concat([header, ...boxes]))).rejects.toThrow(/damaged/)
    }
    await expect(opened(Buffer.concat([file, Buffer.from('x')]))).rejects.toThrow(/damaged/)
  })

  it.each([0, 5, SEAL_START_BYTES, HEADER, HEADER + BOX, HEADER + SEALED_BOX + 9, -1])(
    'refuses a changed bit in byte %i',
    async (at) => {
      const changed = Buffer.from(file)
      const place = at < 0 ? changed.length + at : at
      changed[place] = (changed[place] ?? 0) ^ 1
      // Without the magic it is no encrypted file, and is not opened as one.
      if (place < SEAL_START_BYTES) expect(isSealed(changed)).toBe(false)
      await expect(opened(changed)).rejects.toThrow(/damaged/)
    },
  )
})
