import { anyOf, MISMATCH, type SignedRequest } from './webhook-mac.ts'

/** Bytes of a form that is taken apart; Plivo's have a few kilobytes. */
const MAX_FORM = 65_536
const MAC = { encoding: 'base64' } as const

/**
 * The third version, of calls, signs the address, the fields of a form and a nonce; the second, of
 * messages, the address and a nonce alone. One is made with the token of the account that the request is
 * about, the other with that of its main account.
 */
export function verifyPlivo(request: SignedRequest): string | undefined {
  const { headers, body } = request
  const isThird = headers.get('x-plivo-signature-v3-nonce') !== undefined
  const version = isThird ? 'v3' : 'v2'
  const nonce = headers.get(`x-plivo-signature-${version}-nonce`)
  if (nonce === undefined) return MISMATCH
  if (body.length > MAX_FORM) return `The form exceeds ${MAX_FORM} bytes.`
  const names = [`x-plivo-signature-${version}`, `x-plivo-signature-ma-${version}`]
  const presented = names.flatMap((name) => headers.get(name) ?? []).join(',')
  const texts = isThird ? thirdTexts(request, nonce) : secondTexts(request, nonce)
  const failures = texts.map((text) => anyOf(presented, MAC, request.secret, Buffer.from(text)))
  return failures.includes(undefined) ? undefined : MISMATCH
}

function secondTexts({ url }: SignedRequest, nonce: string): string[] {
  return basesOf(url).map((base) => base + nonce)
}

function thirdTexts({ method, url, headers, body }: SignedRequest, nonce: string): string[] {
  const isForm = /^application\/x-www-form-urlencoded\b/i.test(headers.get('content-type') ?? '')
  // Nothing signs what is no form.
  if (body.length > 0 && (!isForm || method !== 'POST')) return []
  const query = pairsOf(url.split('?', 2)[1]).map((pair) => pair.join('='))
  const fields = pairsOf(body.toString()).map((pair) => pair.join(''))
  const mark = query.length > 0 || fields.length > 0 ? '?' : ''
  const point = query.length > 0 && fields.length > 0 ? '.' : ''
  const rest = `${mark}${query.join('&')}${point}${fields.join('')}.${nonce}`
  return basesOf(url).map((base) => base + rest)
}

/** Plivo signs an address as it was written down, which may have ended with its host. */
function basesOf(url: string): string[] {
  const [base = ''] = url.split('?', 1)
  return new URL(base).pathname === '/' ? [base, base.replace(/\/$/, '')] : [base]
}

/** By name and value, in the order of code units. */
function pairsOf(text: string | undefined): [string, string][] {
  return [...new URLSearchParams(text)].sort(
    ([a, one], [b, other]) => compare(a, b) || compare(one, other),
  )
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
