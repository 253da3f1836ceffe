/** A word with this part is secret, whatever surrounds it. */
const STEM =
  /passw(?:or)?[dt]|passphrase|passcode|kennwort|secret(?!ar)|token(?!i[sz])|cookie|credential|authori[sz]ation|signature|jwt|bearer|sess(?:ion)?id/
/** Whole words that make a name secret. */
const WORDS = new Set(
  'pass pwd pw passwd auth oauth key keys sig session sessions sess sid otp totp saml assertion'.split(
    ' ',
  ),
)
/** Compounds in lower case, such as `apikey` and `dbpass`. */
const COMPOUND =
  /^(?:api|app|auth|access|account|admin|aes|client|encryption|function|hmac|host|license|master|private|root|rsa|service|session|shared|signing|ssh|storage|subscription|user|webhook)keys?$|^(?:admin|db|ftp|login|mail|mysql|new|old|root|smtp|user|wifi)(?:pass|pwd)$|^saml(?:request|response)$/
/** Words that make a `code` secret. `status_code` and `zip_code` are not. */
const CODE_OF = new Set(
  '2fa access activation auth backup confirmation device fa invitation invite login mfa oauth oob otp pairing passcode pin recovery reset security sms time unlock user verification verifier verify'.split(
    ' ',
  ),
)
/** Words that make a `key` harmless: it only identifies something. */
const OPEN_KEY = new Set(
  'cache column foreign id idempotency index partition primary public sort surrogate websocket'.split(
    ' ',
  ),
)
/** Last words that make the name a property: `token_type`, `password_changed_at`. */
const PROPERTY = new Set(
  'alg algorithm at count endpoint endpoints expires expiry in length size type types uri url'.split(
    ' ',
  ),
)
/** Names of hashes and traces. Their values are random, but not secret. */
const RANDOM =
  /^(?:sha\d*|md5|hash|digest|etag|if-(?:none-)?match|checksum|fingerprint|integrity|commit|revision|traceparent|tracestate|(?:content|repr)-(?:digest|md5)|sec-websocket-(?:key|accept)|content-security-policy|boundary)(?:-report-only)?$|(?:^|[-_.])(?:sha\d*|md5|hash|digest|checksum|fingerprint|trace-?id|span-?id|request-?id|correlation-?id|cf-id|id-2)$/i

/**
 * True for the name of a field, header or parameter with a secret value. A name is judged by its words.
 * `X-Auth-Key`, `dbPassword` and `user[pass]` are secret. `author`, `keyboard` and `passenger` are not.
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

/** True for names of values that look random but are not secret, such as `ETag` and `sha256`. */
function isRandomName(name: string): boolean {
  return RANDOM.test(name)
}

/** Returns the words in lower case, split at punctuation, digits and capitals. */
function wordsOf(name: string): string[] {
  return name
    .slice(0, 256)
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word !== '')
}

/*
 * All functions here take time proportional to the length of the text. Patterns are bounded, or begin at the
 * end of the previous match.
 */

export const MASK = '[secret]'

/** A scheme followed by credentials. Secret in any field. */
const CREDENTIALS = /^(?:basic|bearer|digest|negotiate|ntlm|hawk|token|apikey)\s+\S/i
/** Texts that are secret because of their form. */
const FORMS: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, MASK],
  // Join strings, also without their addresses.
  [/dajoin\d{1,9}_[\w-]+(?:@[\w.:,[\]-]*)?/g, MASK],
  // Keeps `Basic information`. Credentials contain a digit, a symbol, or a capital after a small letter.
  [
    /\b([Bb]earer|[Bb]asic|[Dd]igest|NTLM|Negotiate)\s+(?=[^\s"\\]*(?:[\d+/=._-]|[a-z][A-Z]))[\w.~+/-]{4,}=*/g,
    `$1 ${MASK}`,
  ],
  [/(?<![\w-])eyJ[\w-]{6,}(?:\.[\w-]*){1,4}/g, MASK],
  [
    /(?<![\w-])(?:dagt_|whsec_|gh[pousr]_|github_pat_|glpat-|npm_|hf_|xox[abeprs]-|[sr]k_(?:live|test)_|sk-|AKIA|ASIA|AIza|SG\.)[\w.+/-]{8,}=*/g,
    MASK,
  ],
]
/** Masks all cookies in HTTP headers, because a session cookie may have any name. */
const COOKIES: typeof FORMS = [
  [/\b((?:set-)?cookie\s{0,16}[:=]\s{0,16})[^\s"'\\[][^\r\n"\\]*/gi, `$1${MASK}`],
]

/**
 * Masks the value of a header field. Secret fields and credentials are masked completely. Other values are
 * handled as text.
 */
export function maskedValue(name: string, value: string): string {
  if (isRandomName(name)) return maskedParameters(value)
  if (isSecretName(name) && !isPlain(value)) return MASK
  return CREDENTIALS.test(value) ? MASK : maskedText(value)
}

/** Masks user names, secret parameters and random parts in a path, or in a text with URLs. */
export function maskedAddresses(text: string): string {
  return withoutRandom(maskedParameters(text))
}

/** Returns scheme and host of a URL. The rest of a webhook's URL gives access to it. */
export function maskedWebhookUrl(text: string): string {
  if (!URL.canParse(text)) return text
  const { protocol, host, pathname, search, hash } = new URL(text)
  const isBare = pathname.length <= 1 && search === '' && hash === ''
  return `${protocol}//${host}${isBare ? '' : `/${MASK}`}`
}

/**
 * Masks a body, or its beginning. Forms are read part by part. Other text is searched for JSON, XML, YAML and
 * `name=value`. The content type is not relied on for this, since it may be wrong and the end may be missing.
 */
export function maskedBody(text: string, contentType: string): string {
  if (/x-www-form-urlencoded/i.test(contentType)) return maskedAddresses(`?${text}`).slice(1)
  if (/^multipart\//i.test(contentType)) return maskedParts(text, contentType)
  // In code, `name: value` is not a field. Only quoted texts are values.
  return maskedText(text, { isCode: /javascript|ecmascript|css|html/i.test(contentType) })
}

/** Masks any text: a log line, a document, a message. */
export function maskedText(text: string, { isCode = false } = {}): string {
  const formless = replaced(COOKIES, replaced(FORMS, text))
  const structured = maskedXml(maskedJson(formless))
  const lines = isCode ? structured : maskedLines(structured)
  return maskedAddresses(maskedPairs(lines, isCode))
}

/**
 * Masks secrets recognized by their form: private keys, JWTs, `Bearer …`, and users and parameters in URLs.
 * Cheap, because every log line passes through it.
 */
export function maskedForms(text: string): string {
  return maskedParameters(replaced(FORMS, text))
}

function replaced(patterns: typeof FORMS, text: string): string {
  return patterns.reduce((left, [pattern, mask]) => left.replace(pattern, mask), text)
}

/** Booleans are not secret. Masked values stay unchanged. */
function isPlain(value: string): boolean {
  return /^(?:true|false|null|undefined)?$/i.test(value) || /^(?:\w+ )?\[secret\]$/.test(value)
}

/** True if the value of a field has to be masked. */
function isHidden(name: string, value: string): boolean {
  if (!isSecretName(name) || isPlain(value)) return false
  // Codes of errors and states are not secret: `404`, `not_found`, `ECONNRESET`, `ERR_NGROK_301`.
  const isCode = /^codes?$/i.test(name) && !looksRandom(value)
  return !(
    isCode && /^(?:-?\d{1,3}|[a-z]+(?:[-_. ][a-z]+)*|[A-Z][A-Z\d]*(?:_[A-Z\d]+)*)$/.test(value)
  )
}

// URLs

function maskedParameters(text: string): string {
  const open = text.replace(/\/\/[^/\s?#"'<>]*@/g, `//${MASK}@`)
  const queries = maskedQuery(open, /[?&#]([^=&#?\s"<>]*)=/g, /[^&#\s"<>\\]*/y)
  return maskedQuery(queries, /;([^=;/?#\s"<>]*)=/g, /[^;/?#\s"<>\\]*/y)
}

/**
 * Masks the secret pairs of a query. The value of a harmless pair may contain another URL with its own pairs.
 */
function maskedQuery(text: string, begin: RegExp, value: RegExp): string {
  let masked = ''
  let from = 0
  for (const match of text.matchAll(begin)) {
    const at = match.index + match[0].length
    if (match.index < from) continue
    const isSecret = isSecretName(decoded(match[1] ?? ''))
    // A harmless value may contain the start of another query, which is checked separately.
    const end = isSecret ? value : SHORT
    end.lastIndex = at
    const [written = ''] = end.exec(text) ?? []
    if (isSecret ? isMaskedOrTruth(written) : !holdsSecret(written)) continue
    masked += `${text.slice(from, at)}${MASK}`
    from = at + written.length
  }
  return masked + text.slice(from)
}

const SHORT = /[^?;&#\s"<>\\]*/y
const isMaskedOrTruth = (value: string) => value !== '' && isPlain(value)

/** Whether a value contains a URL with secrets. It is percent-encoded, perhaps more than once. */
function holdsSecret(value: string): boolean {
  if (!/%(?:25)*(?:23|26|3b|3d|3f)/i.test(value)) return false
  const address = decoded(decoded(decoded(value)))
  const pairs = address.matchAll(/(?:^|[?&#;])([^=&#?;\s"<>]*)=/g)
  return [...pairs].some(([, name = '']) => isSecretName(decoded(name)))
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll('+', ' '))
  } catch {
    return name
  }
}

// Multipart forms

function maskedParts(text: string, contentType: string): string {
  const named = /\bboundary="?([^"\r\n;]{1,128})/i.exec(contentType)?.[1]?.trim()
  const boundary = named ?? /^--([^\r\n]{1,128})/.exec(text)?.[1]
  if (boundary === undefined) return maskedText(text)
  // Splits before each boundary line. Such a line within a value has a different boundary.
  return text
    .split(new RegExp(`(?=\\r?\\n--${escapedPattern(boundary)})`))
    .map(maskedPart)
    .join('')
}

/** Masks a part of a multipart form: a header with its name, an empty line, and its value. */
function maskedPart(part: string): string {
  const empty = /\r?\n\r?\n/.exec(part)
  if (!empty) return part
  const head = part.slice(0, empty.index)
  const value = part.slice(empty.index + empty[0].length)
  const name = /\bname\*?="?([^"\r\n;]{0,256})/i.exec(head)?.[1] ?? ''
  if (isHidden(decoded(name), value)) return `${head}${empty[0]}${MASK}`
  const type = /^content-type:\s*([^\r\n]{0,256})/im.exec(head)?.[1] ?? ''
  return `${head}${empty[0]}${maskedBody(value, /^multipart\//i.test(type) ? '' : type)}`
}

const escapedPattern = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')

// JSON

/** A quoted name, also in JSON inside a JSON string, where its quotes are escaped. */
const NAME = /(["'])((?:[^"'\\\r\n]|\\{1,8}[^"'\\\r\n]){1,256})\\{0,8}["']\s{0,64}:\s{0,64}/g
/** Names of the field that holds a pair's name, as in `{"name":"password","value":"…"}`. */
const LABEL = /^(?:name|key|field|label|id)$/i

function maskedJson(text: string): string {
  let masked = ''
  let from = 0
  let labelEnd = -1
  for (const match of text.matchAll(NAME)) {
    if (match.index < from) continue
    const at = match.index + match[0].length
    const name = unescaped(match[2] ?? '')
    const isLabelled = name.toLowerCase() === 'value' && labelEnd >= 0 && isNear(text, labelEnd, at)
    if (!isLabelled && !isSecretName(name)) {
      if (LABEL.test(name) && isSecretName(plainValue(text, at))) labelEnd = at
      continue
    }
    const end = endOfValue(text, at)
    const value = text.slice(at, end)
    const isLabelOfPair =
      /^\\{0,8}["']/.test(value) &&
      LABEL.test(name) &&
      /^["'\s,]*\\{0,8}["']value\\{0,8}["']/i.test(text.slice(end, end + 64))
    if (isLabelOfPair) {
      if (isSecretName(plainValue(text, at))) labelEnd = at
      continue
    }
    const inner = unescaped(value.replace(/^\\{0,8}["']|\\{0,8}["']$/g, '').trim())
    if (!(isLabelled ? !isPlain(inner) : value === '' || isHidden(name, inner))) continue
    const escapes = '\\'.repeat(backslashesBefore(text, match.index))
    const quote = `${escapes}${match[1]}`
    masked += `${text.slice(from, at)}${quote}${MASK}${quote}`
    from = end
  }
  return masked + text.slice(from)
}

/** Whether a label applies to a value, which has to follow in the same object. */
function isNear(text: string, labelEnd: number, at: number): boolean {
  return at - labelEnd < 1_024 && !/[{}]/.test(text.slice(labelEnd, at))
}

/** Returns the text value at this position, at most 128 characters. */
function plainValue(text: string, at: number): string {
  const [, value = ''] = /^\\{0,8}["']([^"'\\]{0,128})/.exec(text.slice(at, at + 160)) ?? []
  return value
}

/** Returns a name without escapes, also for JSON inside JSON. */
function unescaped(text: string): string {
  if (!text.includes('\\')) return text
  return text
    .slice(0, 512)
    .replace(/\\{1,8}u([\da-f]{4})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    )
    .replace(/\\{1,8}x([\da-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    )
    .replaceAll('\\', '')
}

/** Returns the end of a JSON value, including nested lists and objects. Truncated text ends the value. */
function endOfValue(text: string, from: number): number {
  let depth = 0
  for (let at = from; at < text.length; at += 1) {
    const letter = text[at] ?? ''
    const isQuote = letter === '"' || (letter === "'" && (at === from || depth > 0))
    if (isQuote) at = endOfString(text, at)
    else if (letter === '{' || letter === '[') depth += 1
    else if (letter === '}' || letter === ']') depth -= 1
    if (depth === 0 && (isQuote || letter === '}' || letter === ']')) return at + 1
    if (depth < 0 || (depth === 0 && /[,\r\n]/.test(letter))) return at
  }
  return text.length
}

/**
 * Returns the position of the closing quote of a string. A quote after `before` backslashes belongs to JSON
 * inside JSON. A quote with the same number ends the string. A quote with more is part of it.
 */
function endOfString(text: string, from: number): number {
  const quote = text[from]
  const before = backslashesBefore(text, from)
  let backslashes = 0
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === '\\') {
      backslashes += 1
      continue
    }
    if (text[at] === quote && (backslashes < before || backslashes % (2 * (before + 1)) === before))
      return at
    backslashes = 0
  }
  return text.length
}

/** Returns the number of backslashes, at most eight: enough for nested JSON. */
function backslashesBefore(text: string, at: number): number {
  let count = 0
  while (count < 8 && text[at - count - 1] === '\\') count += 1
  return count
}

// XML

const TAG = /<([A-Za-z_][\w.:-]{0,127})((?:[^<>"']|"[^"<]*"|'[^'<]*')*)>/g
const ATTRIBUTE = /([\w.:-]{1,128})(\s{0,16}=\s{0,16})("[^"]*"|'[^']*'|[^\s"'=<>`]+)/g

function maskedXml(text: string): string {
  let masked = ''
  let from = 0
  for (const match of text.matchAll(TAG)) {
    if (match.index < from) continue
    const [whole, name = '', attributes = ''] = match
    const at = match.index + whole.length
    const isLabelled = hasSecretLabel(attributes)
    const shown = maskedAttributes(attributes, isLabelled)
    if (shown !== attributes) {
      masked += `${text.slice(from, match.index)}<${name}${shown}>`
      from = at
    }
    const local = name.slice(name.lastIndexOf(':') + 1)
    if (attributes.endsWith('/') || !(isLabelled || isSecretName(local))) continue
    // A truncated element is masked to its end.
    const close = text.indexOf(`</${name}`, at)
    const end = close < 0 ? text.length : close
    const value = text.slice(at, end)
    if (value.trim() === '' || !(isLabelled || isHidden(local, value.trim()))) continue
    masked += `${text.slice(from, at)}${MASK}`
    from = end
  }
  return masked + text.slice(from)
}

/**
 * Recognizes `<property name="password">`, `<add key="ApiKey" value="…">` and `<input type="password"
 * value="…">`.
 */
function hasSecretLabel(attributes: string): boolean {
  return [...attributes.matchAll(ATTRIBUTE)].some(
    ([, name = '', , value = '']) =>
      /^(?:name|key|id|type|property)$/i.test(name) && isSecretName(value.replace(/["']/g, '')),
  )
}

function maskedAttributes(attributes: string, isLabelled: boolean): string {
  const isPair = /\b(?:value|content)\s{0,16}=/i.test(attributes)
  return attributes.replace(ATTRIBUTE, (pair, name: string, sign: string, value: string) => {
    const quote = /^["']/.exec(value)?.[0] ?? ''
    const inner = quote === '' ? value : value.slice(1, -1)
    const local = name.slice(name.lastIndexOf(':') + 1)
    const isLabel = isPair && LABEL.test(local)
    const isSecret = isLabelled && /^(?:value|content)$/i.test(local)
    if (!(isSecret ? !isPlain(inner) : !isLabel && isHidden(local, inner))) return pair
    return `${name}${sign}${quote}${MASK}${quote}`
  })
}

// YAML, HTTP headers, settings files

const LINE =
  /^([ \t]*(?:-[ \t]+)?(?:export[ \t]+)?)([\w.-]{1,128})([ \t]*(?:=|:(?=[ \t]|$))[ \t]*)(.*)$/

/** Masks lines of `name: value` and `name=value`, including the block below a secret name. */
function maskedLines(text: string): string {
  if (!/[:=]/.test(text)) return text
  let hiddenBelow: number | undefined
  const shown: string[] = []
  for (const part of text.split(/(\r?\n)/)) {
    const isBreak = /^\r?\n$/.test(part)
    const indent = /^[ \t]*/.exec(part)?.[0].length ?? 0
    if (!isBreak && part.trim() !== '' && hiddenBelow !== undefined) {
      const item = /^[ \t]*-(?:[ \t]+|$)/.exec(part)?.[0]
      if (indent > hiddenBelow || (item && indent === hiddenBelow)) {
        shown.push(`${item ?? part.slice(0, indent)}${MASK}`)
        continue
      }
      hiddenBelow = undefined
    }
    const [, lead = '', name = '', sign = '', value = ''] = isBreak ? [] : (LINE.exec(part) ?? [])
    if (name === '' || !isSecretName(name)) {
      shown.push(part)
      continue
    }
    const isBlock = value.trim() === '' || /^[|>][-+\d]*\s*$/.test(value)
    if (isBlock) {
      hiddenBelow = lead.replace(/-[ \t]+/, (dash) => ' '.repeat(dash.length)).length
      shown.push(part)
    } else if (!isHidden(name, value.trim()) || /^(?:\w{1,16} )?\[secret\]/.test(value))
      shown.push(part)
    else shown.push(`${lead}${name}${sign}${MASK}`)
  }
  return shown.join('')
}

// Pairs anywhere

/** `name=value`, `name: value`, `name => value`. */
const PAIR = /(?<![\w.%[\]-])([\w.%[\]-]{1,128})[ \t]{0,16}(?:=>|:=|[=:])[ \t]{0,16}/g
const BARE = /[^\s&;,"'}<>)\\]+/y

function maskedPairs(text: string, isCode: boolean): string {
  let masked = ''
  let from = 0
  PAIR.lastIndex = 0
  for (let match = PAIR.exec(text); match; match = PAIR.exec(text)) {
    const name = decoded(match[1] ?? '')
    if (!isSecretName(name)) continue
    const at = PAIR.lastIndex
    const opening = /^\\{0,8}["']/.exec(text.slice(at, at + 9))?.[0] ?? ''
    if (opening === '' && isCode) continue
    const quoteAt = at + opening.length - 1
    BARE.lastIndex = at
    const end =
      opening === ''
        ? at + (BARE.exec(text)?.[0].length ?? 0)
        : Math.min(text.length, endOfString(text, quoteAt) + 1)
    const written = text.slice(at, end)
    const value = opening === '' ? written : written.slice(opening.length, -opening.length)
    // Text after a scheme is already masked. `|` and `>` begin a YAML block.
    const isLead = /^(?:Bearer|Basic|Digest|NTLM|Negotiate|[|>][-+\d]*)$/i.test(value)
    const isLabel = LABEL.test(name) && /^\s{1,16}value\s{0,16}=/i.test(text.slice(end, end + 64))
    if (!isLead && !isLabel && value !== '' && isHidden(name, value)) {
      masked += `${text.slice(from, at)}${opening}${MASK}${opening}`
      from = end
    }
    PAIR.lastIndex = Math.max(at, end)
  }
  return masked + text.slice(from)
}

// Random texts

const RUN = /[A-Za-z\d+/_%-]{20,}={0,2}/g
const UUID = /[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}/gi
/** Minimum length at which unnamed text counts as secret: 128 bits in hex, 192 in base64. */
const LEAST_RANDOM = 32

/**
 * Masks long random texts: keys in hex and base64. Readable are UUIDs, ids of up to 31 characters (ULID,
 * KSUID, ObjectId), and hashes and trace ids with known names.
 */
function withoutRandom(text: string): string {
  return text.replace(RUN, (run, at: number) => {
    if (run.startsWith('/') || run.includes('//') || text[at - 1] === '.') {
      return run.replace(/[^/]{20,}/g, (part) => maskedRun(part, text, at))
    }
    return maskedRun(run, text, at)
  })
}

function maskedRun(run: string, text: string, at: number): string {
  const names = run.startsWith('sha') && /^sha\d{3}-/.test(run)
  if (names || !looksRandom(run)) return run
  const name = /([\w.-]{1,64})\\{0,8}["']?\s{0,4}[:=]\s{0,4}(?:W\/)?\\{0,8}["']?$/.exec(
    text.slice(Math.max(0, at - 96), at),
  )?.[1]
  return name !== undefined && isRandomName(name) ? run : MASK
}

/** True for text that is probably machine-generated. */
function looksRandom(text: string): boolean {
  const bare = text
    .replace(/%2b|%2f/gi, '+')
    .replace(/%3d/gi, '=')
    .replace(UUID, '')
    .replace(/^[a-z]{1,12}_(?=[A-Za-z\d]{27}$)/, '')
  // Other percent-encoded characters are words in another script.
  if (bare.includes('%')) return false
  const isPadded = bare.endsWith('=') && bare.length % 4 === 0 && bare.length >= 20
  if (bare.length < LEAST_RANDOM && !isPadded) return false
  if (/^[A-Za-z\d]+$/.test(bare)) {
    const digits = bare.replace(/\D/g, '').length
    if (digits >= 4 && bare.length - digits >= 4) return true
  }
  let changes = 0
  for (let at = 1; at < bare.length; at += 1) {
    const [one, next] = [kindOf(bare.charCodeAt(at - 1)), kindOf(bare.charCodeAt(at))]
    if (one !== next && one !== undefined && next !== undefined) changes += 1
  }
  // Random base64 changes between capitals, small letters and digits at 62 % of its positions.
  return changes >= bare.length * 0.35
}

function kindOf(code: number): 'digit' | 'capital' | 'small' | undefined {
  if (code >= 97) return 'small'
  if (code >= 65 && code <= 90) return 'capital'
  return code >= 48 && code <= 57 ? 'digit' : undefined
}
