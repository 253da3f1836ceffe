import { createPrivateKey, generateKeyPair } from 'node:crypto'
import { promisify } from 'node:util'

/** As the management API names them. */
export const PRIVATE_KEY_TYPES = ['ecdsa', 'rsa'] as const
export type PrivateKeyType = (typeof PRIVATE_KEY_TYPES)[number]

const generate = promisify(generateKeyPair)

/** A fresh private key, PEM: P-256, or RSA with 2048 bits. */
export async function createPrivateKeyPem(type: PrivateKeyType = 'ecdsa'): Promise<string> {
  const { privateKey } =
    type === 'rsa'
      ? await generate('rsa', { modulusLength: 2_048 })
      : await generate('ec', { namedCurve: 'P-256' })
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
}

/** Whether a text is a private key, PEM, that can be used. */
export function isPrivateKey(pem: string): boolean {
  try {
    createPrivateKey(pem)
    return true
  } catch {
    return false
  }
}
