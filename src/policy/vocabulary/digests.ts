import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { EvaluationError } from '../expression/evaluation.ts'
import {
  checked,
  type ExpressionFunction,
  fnWithin,
  methodWithin,
} from '../expression/expression-function.ts'
import { type Node, textOf } from '../expression/expression-tree.ts'
import { crc64 } from './crc64.ts'
import { xxhash64 } from './xxhash64.ts'

const FORMATS = "digests are written as 'hex' or 'base64'"

const nodeDigest = (name: string) => (bytes: Buffer) => createHash(name).update(bytes).digest()

/** Each digest and the steps that 32 bytes take. */
const DIGESTS: Readonly<Record<string, { steps: number; digest: (bytes: Buffer) => Buffer }>> = {
  md5: { steps: 2, digest: nodeDigest('md5') },
  sha1: { steps: 2, digest: nodeDigest('sha1') },
  sha256: { steps: 2, digest: nodeDigest('sha256') },
  sha512: { steps: 2, digest: nodeDigest('sha512') },
  crc32: { steps: 1, digest: crc32Bytes },
  crc64: { steps: 4, digest: crc64 },
  xxhash64: { steps: 32, digest: xxhash64 },
}

/** `hash.sha256(text)`, `text.sha256()`, both with an optional `'hex'` or `'base64'`. */
export const DIGEST_FUNCTIONS: readonly ExpressionFunction[] = Object.entries(DIGESTS).flatMap(
  ([name, { steps, digest }]) => {
    const run: ExpressionFunction['run'] = (evaluation, text, format = 'hex') => {
      if (format !== 'hex' && format !== 'base64') throw new EvaluationError(FORMATS)
      const bytes = Buffer.from(text as string)
      evaluation.spend((bytes.length * steps) >> 5)
      return digest(bytes).toString(format)
    }
    return [
      fnWithin(`hash.${name}`, ['string'], 'string', run),
      checked(fnWithin(`hash.${name}`, ['string', 'string'], 'string', run), checkFormat),
      methodWithin(name, ['string'], 'string', run),
      checked(methodWithin(name, ['string', 'string'], 'string', run), checkFormat),
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
