import { inspect } from 'node:util'

/** A string that must not be printed: every way to show it gives `[secret]`. */
export class Secret {
  readonly #value: string

  constructor(value: string) {
    this.#value = value
  }

  /** The plain text. Call it where it is used, never earlier. */
  reveal(): string {
    return this.#value
  }

  /** `text` with each occurrence of the secret replaced: for messages made by others. */
  scrub(text: string): string {
    return this.#value.length < 4 ? text : text.replaceAll(this.#value, '[secret]')
  }

  toString(): string {
    return '[secret]'
  }

  toJSON(): string {
    return '[secret]'
  }

  [inspect.custom](): string {
    return '[secret]'
  }
}
