import { MASK, maskedForms, maskedText } from '../../base/masked-text.ts'

/** Shorter ones would be found everywhere, and protect nothing. */
const LEAST_LENGTH = 6
/** A piece of base64 that is shorter says nothing about where it comes from. */
const LEAST_ENCODED = 8

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
    const plain = maskedForms(text)
    return this.#known ? plain.replace(this.#known, MASK) : plain
  }

  /** The same for what anybody may have written: what is called a secret goes, too. */
  scrubWords(text: string): string {
    return maskedText(this.scrub(text))
  }
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
