import type { ActionSource, PolicyDocument } from './document.ts'
import type { ReadConfig } from './read-config.ts'

/** Texts that are kept, and how long one may be: some 4 MB in all. */
const MAX_DOCUMENTS = 64
const MAX_CHARACTERS = 16_384

/** A text in which nothing was wrong. */
export interface KnownDocument {
  /** As it was parsed. */
  readonly value: unknown
  readonly document: PolicyDocument
}

/**
 * Parsed policies without problems. Devices bind the same policies again and again: a device returns with a
 * thousand tunnels and one text. Counters belong to each policy.
 */
export class KnownDocuments {
  readonly #documents = new Map<string, KnownDocument>()
  readonly #configs = new WeakMap<ActionSource, ReadConfig>()

  find(text: string): KnownDocument | undefined {
    return this.#documents.get(text)
  }

  /** The oldest makes room. */
  keep(text: string, known: KnownDocument): void {
    if (text.length > MAX_CHARACTERS) return
    const [oldest] = this.#documents.size >= MAX_DOCUMENTS ? this.#documents.keys() : []
    if (oldest !== undefined) this.#documents.delete(oldest)
    this.#documents.set(text, known)
  }

  /** The configuration of an action of such a document. */
  configOf(action: ActionSource): ReadConfig | undefined {
    return this.#configs.get(action)
  }

  /** Frozen, since several policies read it. */
  keepConfig(action: ActionSource, config: ReadConfig): void {
    freeze(config.value)
    this.#configs.set(action, config)
  }
}

/** Plain values, however deep. */
function freeze(value: unknown): void {
  if (!isPlain(value) || Object.isFrozen(value)) return
  Object.freeze(value)
  for (const item of Object.values(value)) freeze(item)
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  return Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype
}
