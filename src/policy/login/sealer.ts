import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'

const ALGORITHM = 'aes-256-gcm'
const IV_BYTES = 12
const TAG_BYTES = 16

/**
 * What is given to clients and comes back later: they can neither read nor change it, nor use what was
 * made for one purpose for another. The key has to be of 32 bytes.
 */
export class Sealer {
  readonly #key: Buffer

  constructor(key: Buffer) {
    this.#key = key
  }

  /** Base64url of initialization vector, ciphertext and tag (AES-256-GCM). */
  seal(text: string, purpose: string): string {
    const iv = randomBytes(IV_BYTES)
    const cipher = createCipheriv(ALGORITHM, this.#key, iv).setAAD(Buffer.from(purpose))
    const sealed = [iv, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]
    return Buffer.concat(sealed).toString('base64url')
  }

  /** Undefined for anything but what this very key has sealed for this purpose. */
  open(sealed: string, purpose: string): string | undefined {
    const bytes = Buffer.from(sealed, 'base64url')
    if (bytes.length < IV_BYTES + TAG_BYTES) return undefined
    const tagAt = bytes.length - TAG_BYTES
    const decipher = createDecipheriv(ALGORITHM, this.#key, bytes.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    })
    decipher.setAAD(Buffer.from(purpose)).setAuthTag(bytes.subarray(tagAt))
    try {
      return (
        decipher.update(bytes.subarray(IV_BYTES, tagAt), undefined, 'utf8') + decipher.final('utf8')
      )
    } catch {
      return undefined
    }
  }

  /** A secret that comes out the same each time; base64url of 256 bits. */
  derive(label: string): string {
    return createHmac('sha256', this.#key).update(label).digest('base64url')
  }
}
