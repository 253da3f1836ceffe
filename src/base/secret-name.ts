/** Part of a word that is enough, whatever stands around it. */
const STEM =
  /passw(?:or)?[dt]|passphrase|passcode|kennwort|secret(?!ar)|token(?!i[sz])|cookie|credential|authori[sz]ation|signature|jwt|bearer|sess(?:ion)?id/
/** Words that are enough as a whole. */
const WORDS = new Set(
  'pass pwd pw passwd auth oauth key keys sig session sessions sess sid otp totp saml assertion'.split(
    ' ',
  ),
)
/** Compounds in lower case, such as `apikey` and `dbpass`. */
const COMPOUND =
  /^(?:api|app|auth|access|account|admin|aes|client|encryption|function|hmac|host|license|master|private|root|rsa|service|session|shared|signing|ssh|storage|subscription|user|webhook)keys?$|^(?:admin|db|ftp|login|mail|mysql|new|old|root|smtp|user|wifi)(?:pass|pwd)$|^saml(?:request|response)$/
/** A code is a secret beside one of these words; `status_code` and `zip_code` are not. */
const CODE_OF = new Set(
  '2fa access activation auth backup confirmation device fa invitation invite login mfa oauth oob otp pairing passcode pin recovery reset security sms time unlock user verification verifier verify'.split(
    ' ',
  ),
)
/** A key with one of these words names a thing and opens nothing. */
const OPEN_KEY = new Set(
  'cache column foreign id idempotency index partition primary public sort surrogate websocket'.split(
    ' ',
  ),
)
/** A last word that makes the name one of a property: `token_type`, `password_changed_at`. */
const PROPERTY = new Set(
  'alg algorithm at count endpoint endpoints expires expiry in length size type types uri url'.split(
    ' ',
  ),
)
/** Names of hashes and of traces: random by nature, and no secrets. */
const RANDOM =
  /^(?:sha\d*|md5|hash|digest|etag|if-(?:none-)?match|checksum|fingerprint|integrity|commit|revision|traceparent|tracestate|(?:content|repr)-(?:digest|md5)|sec-websocket-(?:key|accept)|content-security-policy|boundary)(?:-report-only)?$|(?:^|[-_.])(?:sha\d*|md5|hash|digest|checksum|fingerprint|trace-?id|span-?id|request-?id|correlation-?id|cf-id|id-2)$/i

/**
 * True for the name of a field, header or parameter whose value is a secret. A name is judged by its
 * words: `X-Auth-Key`, `dbPassword` and `user[pass]` are secret; `author`, `keyboard` and `passenger` not.
 */
export function isSecretName(name: string): boolean {
  const words = wordsOf(name)
  if (words.length > 1 && PROPERTY.has(words.at(-1) ?? '')) return false
  const whole = words.length > 1 && /^[a-z]+$/i.test(name) ? [name.toLowerCase()] : []
  if ([...words, ...whole].some((word) => STEM.test(word) || COMPOUND.test(word))) return true
  if (words.some((word) => /^codes?$/.test(word))) {
    if (words.length === 1 || words.some((word) => CODE_OF.has(word))) return true
  }
  return words.some((word) => {
    if (!WORDS.has(word)) return false
    return !/^keys?$/.test(word) || !words.some((other) => OPEN_KEY.has(other))
  })
}

/** True for names of values that look random and are no secrets, such as `ETag` and `sha256`. */
export function isRandomName(name: string): boolean {
  return RANDOM.test(name)
}

/** In lower case, split at signs, digits and humps. */
function wordsOf(name: string): string[] {
  return name
    .slice(0, 256)
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word !== '')
}
