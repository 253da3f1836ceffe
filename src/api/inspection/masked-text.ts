import { isSecretName } from '../../base/log/secret-name.ts'

export const MASK = '[secret]'

/** Where a scheme stands, what follows lets somebody in, whatever the field is called. */
const CREDENTIALS = /^(?:basic|bearer|digest|negotiate|token)\s+\S/i

/**
 * The value of a header field. Of a secret one nothing is left; in any other, addresses may stand, and
 * credentials of some scheme.
 */
export function maskedValue(name: string, value: string): string {
  return isSecretName(name) || CREDENTIALS.test(value) ? MASK : maskedAddresses(value)
}

/** A text with addresses in it: values of parameters that are called secrets, and who signs in there. */
export function maskedAddresses(text: string): string {
  const open = text.replace(/\/\/[^/\s@?#"<>]*@/g, `//${MASK}@`)
  const queries = maskedPairs(open, /[?&#]([^=&#?\s"<>]*)=/g, /[^&#\s"<>]*/y)
  return maskedPairs(queries, /;([^=;/?#\s"<>]*)=/g, /[^;/?#\s"<>]*/y)
}

/**
 * A body, or its beginning: values that a form, JSON or XML calls secrets. It is not parsed, since half of
 * it may be missing, and it is shown as it was.
 */
export function maskedBody(text: string, contentType: string): string {
  if (/x-www-form-urlencoded/i.test(contentType)) return maskedAddresses(`?${text}`).slice(1)
  if (/^multipart\//i.test(contentType)) return text.split(BOUNDARY).map(maskedPart).join('')
  return maskedJson(text).replace(ELEMENT, maskedElement)
}

/** Before each line that begins a part of a form. */
const BOUNDARY = /(?=\r?\n--)/
const ELEMENT = /<([\w.:-]+)((?:\s[^<>]*)?)>([^<]+)/g
/** A name in JSON, also where it stands in a text of JSON, with its quotes escaped. */
const NAME = /\\?"([^"\\]{1,128})\\?"\s*:\s*/g

/** In the value of a pair that is no secret may stand another address, with pairs of its own. */
function maskedPairs(text: string, begin: RegExp, value: RegExp): string {
  let masked = ''
  let from = 0
  for (const match of text.matchAll(begin)) {
    const at = match.index + match[0].length
    if (match.index < from) continue
    value.lastIndex = at
    const [written = ''] = value.exec(text) ?? []
    if (!isSecretName(decoded(match[1] ?? '')) && !hidesSecret(written)) continue
    masked += `${text.slice(from, at)}${MASK}`
    from = at + written.length
  }
  return masked + text.slice(from)
}

/** An address in a value is written with its signs escaped. */
function hidesSecret(value: string): boolean {
  if (!/%(?:23|26|3b|3f)/i.test(value)) return false
  const address = decoded(value)
  const pairs = address.matchAll(/[?&#;]([^=&#?;\s"<>]*)=/g)
  return [...pairs].some(([, name = '']) => isSecretName(decoded(name)))
}

/** A part has a head with its name, an empty line, and its value. */
function maskedPart(part: string): string {
  const empty = /\r?\n\r?\n/.exec(part)
  if (!empty) return part
  const head = part.slice(0, empty.index)
  const name = /\bname="?([^"\r\n;]*)/i.exec(head)?.[1] ?? ''
  return isSecretName(name) ? `${head}${empty[0]}${MASK}` : part
}

function maskedElement(whole: string, name: string, attributes: string): string {
  return isSecretName(name) ? `<${name}${attributes}>${MASK}` : whole
}

function maskedJson(text: string): string {
  let masked = ''
  let from = 0
  for (const match of text.matchAll(NAME)) {
    const at = match.index + match[0].length
    if (match.index < from || !isSecretName(match[1] ?? '')) continue
    const quote = match[0].startsWith('\\') ? '\\"' : '"'
    masked += `${text.slice(from, at)}${quote}${MASK}${quote}`
    from = endOfValue(text, at)
  }
  return masked + text.slice(from)
}

/** Where a value of JSON ends, a list or an object with all that is in it; at the end of the text where it is cut. */
function endOfValue(text: string, from: number): number {
  let depth = 0
  for (let at = from; at < text.length; at += 1) {
    const letter = text[at] ?? ''
    if (letter === '"') at = endOfString(text, at)
    else if (letter === '{' || letter === '[') depth += 1
    else if (letter === '}' || letter === ']') depth -= 1
    const isOver = depth === 0 && /["}\]]/.test(letter)
    if (isOver) return at + 1
    if (depth < 0 || (depth === 0 && /[,\r\n]/.test(letter))) return at
  }
  return text.length
}

/** At the quote that ends a string; a text in which quotes are escaped ends it by an escaped one. */
function endOfString(text: string, from: number): number {
  const isEscaped = text[from - 1] === '\\'
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === '"') return at
    if (text[at] !== '\\') continue
    if (isEscaped && text[at + 1] === '"') return at + 1
    at += 1
  }
  return text.length
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll('+', ' '))
  } catch {
    return name
  }
}
