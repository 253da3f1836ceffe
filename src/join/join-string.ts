import { createHash, randomBytes, X509Certificate } from 'node:crypto'
import {
  formatListenAddress,
  type ListenAddress,
  parseListenAddress,
} from '../base/listen-address.ts'
import { Secret } from '../base/secret.ts'

/**
 * What a device needs to join a gateway. As text: `dajoin1_`, 80 characters of base64url, `@`, and addresses
 * separated by commas. The characters contain the id, the secret, the pin and 4 check bytes.
 */
export interface JoinString {
  /** Id of the invitation, 16 hex digits. */
  readonly id: string
  /** One-time secret of the invitation, 22 characters of base64url. */
  readonly secret: Secret
  /** Pin of the gateway's CA; see `pinOf`. */
  readonly pin: string
  /** Addresses for agents, the best first. */
  readonly addresses: readonly ListenAddress[]
}

const ID_BYTES = 8
const SECRET_BYTES = 16
const PIN_BYTES = 32
const CHECK_BYTES = 4
const BODY_BYTES = ID_BYTES + SECRET_BYTES + PIN_BYTES
const FORM = /^dajoin1_([\w-]{80})@([\w.:,[\]-]+)$/
const VERSION = /^dajoin(\d{1,9})_/
/** More addresses make the QR code unreadable. */
export const MAX_JOIN_ADDRESSES = 6
const MAX_TEXT = 2_048
/** Characters that terminals, editors and chats add: spaces, line breaks, invisible characters. */
const ADDED = /[\s\u00ad\u200b-\u200f\u2060\ufeff]+/g
/** Quotes and brackets around a copied text. */
const QUOTES = /^["'`<\u201c\u2018]+|["'`>\u201d\u2019]+$/g

/**
 * Returns the pin of a CA: SHA-256 of its public key (SubjectPublicKeyInfo), hex. A renewed CA certificate
 * keeps its key, so the pin stays the same. Throws if the text is not a certificate.
 */
export function pinOf(caPem: string): string {
  const { publicKey } = new X509Certificate(caPem)
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex')
}

/** Makes a join string for a new invitation. Throws if there is no address or more than MAX_JOIN_ADDRESSES. */
export function makeJoinString({
  pin,
  addresses,
}: Pick<JoinString, 'pin' | 'addresses'>): JoinString & { readonly text: Secret } {
  if (addresses.length === 0 || addresses.length > MAX_JOIN_ADDRESSES) {
    throw new RangeError(`a join string has 1 to ${MAX_JOIN_ADDRESSES} addresses`)
  }
  const id = randomBytes(ID_BYTES)
  const secret = randomBytes(SECRET_BYTES)
  const body = Buffer.concat([id, secret, Buffer.from(pin, 'hex')])
  if (body.length !== BODY_BYTES) throw new RangeError('the pin is not a SHA-256 in hex')
  const list = addresses.map(formatListenAddress).join(',')
  const characters = Buffer.concat([body, checkOf(body, list)]).toString('base64url')
  return {
    id: id.toString('hex'),
    secret: new Secret(secret.toString('base64url')),
    pin,
    addresses,
    text: new Secret(`dajoin1_${characters}@${list}`),
  }
}

/** Parses a join string, also with line breaks and spaces in it. Returns the reason if it cannot be used. */
export function parseJoinString(text: string): JoinString | { readonly problem: string } {
  const whole = text.slice(0, MAX_TEXT).replace(ADDED, '').replace(QUOTES, '')
  const version = Number(VERSION.exec(whole)?.[1] ?? Number.NaN)
  if (Number.isNaN(version)) {
    return {
      problem:
        'This is not a join string. On the gateway, run device-agent gateway invite, and copy the whole line that begins with dajoin1_.',
    }
  }
  if (version !== 1) {
    return {
      problem: 'The join string is of a newer gateway. Update device-agent on this device first.',
    }
  }
  const [, characters, list = ''] = FORM.exec(whole) ?? []
  if (characters === undefined) {
    return { problem: 'The join string is incomplete. Copy the whole line again.' }
  }
  const bytes = Buffer.from(characters, 'base64url')
  const body = bytes.subarray(0, BODY_BYTES)
  const addresses = list.split(',').flatMap((it) => parseListenAddress(it) ?? [])
  const isWhole =
    checkOf(body, list).equals(bytes.subarray(BODY_BYTES)) &&
    addresses.length === list.split(',').length &&
    addresses.length <= MAX_JOIN_ADDRESSES &&
    addresses.every(({ port }) => port > 0)
  if (!isWhole) {
    return {
      problem: 'The join string was changed or cut: its check digits differ. Copy the line again.',
    }
  }
  return {
    id: body.subarray(0, ID_BYTES).toString('hex'),
    secret: new Secret(body.subarray(ID_BYTES, ID_BYTES + SECRET_BYTES).toString('base64url')),
    pin: body.subarray(ID_BYTES + SECRET_BYTES).toString('hex'),
    addresses,
  }
}

function checkOf(body: Buffer, list: string): Buffer {
  return createHash('sha256').update(body).update(list).digest().subarray(0, CHECK_BYTES)
}
