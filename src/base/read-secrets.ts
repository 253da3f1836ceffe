const MASK = '[secret]'
/** Shorter values have no part that is the same in every base64 text. */
const MIN_BASE64_BYTES = 6

/** Secret values that were read, such as by the policies of a request. Texts are masked with them. */
export class ReadSecrets {
  readonly #values = new Set<string>()
  /** All forms of the values. */
  readonly #forms = new Set<string>()

  add(value: string): void {
    if (value === '' || this.#values.has(value)) return
    this.#values.add(value)
    for (const form of formsOf(value)) this.#forms.add(form)
  }

  /**
   * Replaces each value, as it is or encoded for JSON, URLs and base64. Reads the text once for each form, and
   * never masks a mask again. Values that overlap get one mask.
   */
  mask(text: string): string {
    const found = Array.from(this.#forms, (form) => new Occurrences(text, form))
    let left = found.filter(({ start }) => start >= 0)
    let masked = ''
    let at = 0
    while (left.length > 0) {
      const start = Math.min(...left.map((it) => it.start))
      const end = endOfOverlap(left, start)
      masked += text.slice(at, start) + MASK
      at = end
      left = left.filter((it) => it.start >= 0)
    }
    return masked + text.slice(at)
  }

  /** Masks the names and texts in JSON. */
  maskJson<T>(json: T): T {
    if (this.#values.size === 0) return json
    if (typeof json === 'string') return this.mask(json) as T
    if (Array.isArray(json)) return json.map((item) => this.maskJson(item)) as T
    if (typeof json !== 'object' || json === null) return json
    const entries = Object.entries(json).map(([name, value]) => [
      this.mask(name),
      this.maskJson(value),
    ])
    return Object.fromEntries(entries)
  }

  /** An error with masked texts, for the log. */
  maskError(error: unknown): unknown {
    if (this.#values.size === 0 || !(error instanceof Error)) return error
    const masked = new Error(this.mask(error.message))
    masked.name = error.name
    if (error.stack !== undefined) masked.stack = this.mask(error.stack)
    return masked
  }
}

/** The places of one form in a text, from left to right. */
class Occurrences {
  readonly #text: string
  readonly #form: string
  /** Place of the next occurrence; -1 if there is none. */
  start: number

  constructor(text: string, form: string) {
    this.#text = text
    this.#form = form
    this.start = text.indexOf(form)
  }

  get end(): number {
    return this.start + this.#form.length
  }

  advance(): void {
    this.start = this.#text.indexOf(this.#form, this.end)
  }
}

/** End of the occurrence at `start` and of all that overlap it. Advances them. */
function endOfOverlap(found: readonly Occurrences[], start: number): number {
  let end = start + 1
  let before = start
  while (end > before) {
    before = end
    for (const it of found) {
      while (it.start >= 0 && it.start < end) {
        end = Math.max(end, it.end)
        it.advance()
      }
    }
  }
  return end
}

function formsOf(value: string): string[] {
  const url = encodeURIComponent(Buffer.from(value).toString())
  return [
    value,
    JSON.stringify(value).slice(1, -1),
    url,
    url.replaceAll('%20', '+'),
    ...base64Forms(Buffer.from(value)),
  ]
}

/** The parts of base64 texts with these bytes that do not depend on the bytes around them. */
function base64Forms(bytes: Buffer): string[] {
  if (bytes.length < MIN_BASE64_BYTES) return []
  return [0, 1, 2].flatMap((shift) => {
    const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
    const from = Math.ceil((shift * 4) / 3)
    const to = Math.floor(((shift + bytes.length) * 4) / 3)
    const inner = text.slice(from, to)
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')]
  })
}
