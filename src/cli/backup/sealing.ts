import {
  createCipheriv,
  createDecipheriv,
  randomBytes,
  type ScryptOptions,
  scrypt,
} from 'node:crypto'
import { StartError } from '../../base/app-error.ts'
import type { Secret } from '../../base/secret.ts'

/**
 * An encrypted file: magic, salt, boxes. Each box has up to 64 KiB of text and its tag. The key comes from the
 * passphrase and the random salt by scrypt, and encrypts this file alone. The nonce of a box is its number and
 * whether it is the last. So a box that is changed, moved, left out or cut off fails its tag.
 */
const MAGIC = Buffer.from('device-agent-sealed-backup 1\n')
const SALT_BYTES = 16
const BOX_BYTES = 65_536
const TAG_BYTES = 16
const CIPHER = 'aes-256-gcm'
/** 64 MiB of memory: small devices have it. `p` makes up for the time. */
const COST: ScryptOptions = { N: 2 ** 16, r: 8, p: 2, maxmem: 96 * 1024 * 1024 }

/** Whether a file that begins with these bytes is encrypted. */
export function isSealed(start: Buffer): boolean {
  return start.subarray(0, MAGIC.length).equals(MAGIC)
}

/** Number of bytes that `isSealed` needs. */
export const SEAL_START_BYTES = MAGIC.length

/** Encrypts a stream. */
export function seal(passphrase: Secret, cost = COST) {
  return async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    const header = Buffer.concat([MAGIC, randomBytes(SALT_BYTES)])
    const key = await keyFrom(passphrase, header, cost)
    yield header
    let number = 0
    let held: Buffer = Buffer.alloc(0)
    for await (const chunk of source) {
      held = Buffer.concat([held, chunk])
      // The last box is only known at the end, so one is held back.
      while (held.length > BOX_BYTES) {
        yield box(key, header, nonceOf(number, false), held.subarray(0, BOX_BYTES))
        held = held.subarray(BOX_BYTES)
        number += 1
      }
    }
    yield box(key, header, nonceOf(number, true), held)
  }
}

/** Decrypts a stream. Nothing that was changed passes. Throws a StartError. */
export function unseal(passphrase: Secret, cost = COST) {
  return async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    const headerBytes = MAGIC.length + SALT_BYTES
    const fullBox = BOX_BYTES + TAG_BYTES
    let key: Buffer | undefined
    let header: Buffer = Buffer.alloc(0)
    let number = 0
    let held: Buffer = Buffer.alloc(0)
    for await (const chunk of source) {
      held = Buffer.concat([held, chunk])
      if (!key) {
        if (held.length < headerBytes) continue
        header = held.subarray(0, headerBytes)
        key = await keyFrom(passphrase, header, cost)
        held = held.subarray(headerBytes)
      }
      while (held.length > fullBox) {
        yield unbox(key, header, { number, isLast: false }, held.subarray(0, fullBox))
        held = held.subarray(fullBox)
        number += 1
      }
    }
    if (!key) throw new StartError('The backup is incomplete: its end is missing.')
    yield unbox(key, header, { number, isLast: true }, held)
  }
}

function box(key: Buffer, header: Buffer, nonce: Buffer, text: Buffer): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(header)
  return Buffer.concat([cipher.update(text), cipher.final(), cipher.getAuthTag()])
}

function unbox(
  key: Buffer,
  header: Buffer,
  { number, isLast }: { readonly number: number; readonly isLast: boolean },
  sealed: Buffer,
): Buffer {
  try {
    const end = sealed.length - TAG_BYTES
    const nonce = nonceOf(number, isLast)
    const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
    decipher.setAAD(header).setAuthTag(sealed.subarray(Math.max(0, end)))
    return Buffer.concat([decipher.update(sealed.subarray(0, Math.max(0, end))), decipher.final()])
  } catch (error) {
    throw new StartError(
      number === 0
        ? 'The passphrase is wrong, or the backup is damaged or incomplete.'
        : 'The backup is damaged or incomplete.',
      { cause: error },
    )
  }
}

/** 11 bytes for the number, 1 byte for the last box. */
function nonceOf(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(12)
  nonce.writeUIntBE(number, 5, 6)
  nonce[11] = isLast ? 1 : 0
  return nonce
}

function keyFrom(passphrase: Secret, header: Buffer, cost: ScryptOptions): Promise<Buffer> {
  const salt = header.subarray(MAGIC.length)
  // The same characters can be typed as different code points.
  const text = passphrase.reveal().normalize('NFC')
  return new Promise((resolve, reject) => {
    scrypt(text, salt, 32, cost, (error, key) => (error ? reject(error) : resolve(key)))
  })
}
