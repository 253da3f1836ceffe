import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import type { Statement } from '../src/cli/update/signed-archive.ts'

/** An Ed25519 key in PEM, as `openssl genpkey -algorithm ed25519` makes it. */
export function readSigningKey(path: string): KeyObject {
  const key = createPrivateKey(readFileSync(path))
  if (key.asymmetricKeyType !== 'ed25519') throw new Error(`${path} is not an Ed25519 key`)
  return key
}

/** What installed versions check the next one with. */
export function publicKeyOf(key: KeyObject): string {
  return createPublicKey(key).export({ type: 'spki', format: 'pem' }).toString()
}

/** Writes `ARCHIVE.sig` beside it: the statement, and its signature; answers its path. */
export function signArchive(path: string, what: Omit<Statement, 'sha512'>, key: KeyObject): string {
  const sha512 = createHash('sha512').update(readFileSync(path)).digest('hex')
  const statement = JSON.stringify({ ...what, sha512 })
  const signature = sign(null, Buffer.from(statement), key).toString('base64')
  writeFileSync(`${path}.sig`, `${statement}\n${signature}\n`)
  return `${path}.sig`
}
