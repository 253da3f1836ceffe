import { isSecretName } from '../../base/log/secret-name.ts'

const MASK = '[secret]'
/** Shorter ones would be found everywhere, and protect nothing. */
const LEAST_LENGTH = 6
/** A piece of base64 that is shorter says nothing about where it comes from. */
const LEAST_ENCODED = 8

/** What looks like a secret, whoever it belongs to. */
const PATTERNS: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, MASK],
  [/\b(Bearer|Basic|Digest)\s+[\w.~+/-]{4,}=*/gi, `$1 ${MASK}`],
  [/\bdagt_[\w-]{8,}/g, MASK],
  [/\beyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*/g, MASK],
  // A password may have an @ of its own.
  [/(\/\/)[^\s/"']+@/g, `$1${MASK}@`],
]
/** All cookies of a head go: which of them is a session, nobody knows. */
const COOKIES: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/\b((?:set-)?cookie\s*[:=]\s*)[^\s"'\\[][^\r\n"\\]*/gi, `$1${MASK}`],
  [/("(?:set-)?cookie"\s*:\s*)\[[^\]]*\]/gi, `$1"${MASK}"`],
]
/** `name=value` in a query or a line of a log, `name: Bearer value`, and `"name":"value"` in JSON. */
const PAIR =
  /(?<![\w.-])([\w.-]+)((?:\\?["'])?\s*[=:]\s*)(\\"(?:(?!\\").)*\\"|"(?:[^"\\]|\\.)*"|(?:(?:Bearer|Basic|Digest)\s+)?[^\s&;,"'}]+)/gi
const MASKED = /^(?:\w+ )?\[secret\]$/

/** Takes secrets out of texts: those that are known, in whatever form they stand, and their likes. */
export class Scrubber {
  readonly #known: RegExp | undefined

  constructor(secrets: Iterable<string>) {
    const forms = new Set<string>()
    for (const secret of secrets) {
      if (secret.length >= LEAST_LENGTH) for (const form of formsOf(secret)) forms.add(form)
    }
    // The longest first: a part must not hide the whole.
    const all = [...forms].sort((a, b) => b.length - a.length).map(escaped)
    this.#known = all.length === 0 ? undefined : new RegExp(all.join('|'), 'g')
  }

  /** A text without the secrets that are known, and without what looks like one. */
  scrub(text: string): string {
    const plain = replaceAll(PATTERNS, text)
    return this.#known ? plain.replace(this.#known, MASK) : plain
  }

  /** The same for what anybody may have written: what is called a secret goes, too. */
  scrubWords(text: string): string {
    return withoutNamed(replaceAll(COOKIES, this.scrub(text)))
  }
}

function replaceAll(patterns: typeof PATTERNS, text: string): string {
  return patterns.reduce((left, [pattern, mask]) => left.replace(pattern, mask), text)
}

/** Values go whose names say that they are secrets; those of others are looked into. */
function withoutNamed(text: string): string {
  return text.replace(PAIR, (pair, name: string, sign: string, value: string) => {
    const quote = /^\\?"/.exec(value)?.[0] ?? ''
    const inner = value.slice(quote.length, value.length - quote.length)
    if (MASKED.test(inner)) return pair
    if (isSecretName(name)) return `${name}${sign}${quote}${MASK}${quote}`
    return `${name}${sign}${quote}${withoutNamed(inner)}${quote}`
  })
}

function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const url = encodeURIComponent(secret)
  const json = JSON.stringify(secret).slice(1, -1)
  const lower = (text: string) => text.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())
  return [
    secret,
    json,
    JSON.stringify(json).slice(1, -1),
    url,
    lower(url),
    url.replaceAll('%20', '+'),
    bytes.toString('hex'),
    ...[0, 1, 2].flatMap((offset) => base64At(bytes, offset)),
  ]
}

/** How it stands in base64 behind `offset` other bytes; the ends, which it shares, are left out. */
function base64At(bytes: Buffer, offset: number): string[] {
  const behind = Buffer.concat([Buffer.alloc(offset), bytes])
  const start = Math.ceil((offset * 8) / 6)
  const end = Math.floor((behind.length * 8) / 6)
  const whole = behind.toString('base64').slice(start, end)
  if (whole.length < LEAST_ENCODED) return []
  return [whole, whole.replaceAll('+', '-').replaceAll('/', '_'), encodeURIComponent(whole)]
}

const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
