/** A secret as `secrets.get('vault', 'name')` names it. */
export interface SecretName {
  readonly vault: string
  readonly name: string
}

/** Why a policy cannot use a secret. */
export interface SecretProblem {
  readonly message: string
  /** See `PolicyProblem`. */
  readonly isOnlyForNew: boolean
}

/** Secrets for the policy of one endpoint. */
export interface PolicySecrets {
  /** Why the policy cannot use a secret; undefined if it can. */
  problemOf(secret: SecretName): SecretProblem | undefined
  /** The current value; undefined if the policy cannot use the secret now. */
  read(secret: SecretName): string | undefined
}

const MASK = '[secret]'
/** Shorter values have no part that is the same in every base64 text. */
const MIN_BASE64_BYTES = 6

/** Values that the policies of a request have read. Texts for logs are masked with them. */
export class ReadSecrets {
  readonly #values = new Set<string>()

  add(value: string): void {
    this.#values.add(value)
  }

  /** Replaces each value, as it is or encoded for JSON, URLs and base64. */
  mask(text: string): string {
    if (this.#values.size === 0) return text
    const forms = Array.from(this.#values, formsOf).flat()
    // Longest first, because a value can be part of another.
    const sorted = forms.filter((form) => form !== '').sort((a, b) => b.length - a.length)
    return sorted.reduce((left, form) => left.replaceAll(form, MASK), text)
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
