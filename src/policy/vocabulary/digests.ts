import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { EvaluationError } from '../expression/evaluation-error.ts'
import { checked, type ExpressionFunction, fn, method } from '../expression/expression-function.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'
import { crc64 } from './crc64.ts'
import { xxhash64 } from './xxhash64.ts'

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
