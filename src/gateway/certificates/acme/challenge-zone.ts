/** The answers to ACME's DNS challenges (RFC 8555 section 8.4), there while they are asked for. */
export class ChallengeZone {
  /** The name above all others in it, lower case. */
  readonly name: string
  readonly #valuesOf = new Map<string, Set<string>>()

  constructor(name: string) {
    this.name = name
  }

  /** A name may carry several values: orders can overlap. */
  publish(name: string, value: string): void {
    const values = this.#valuesOf.get(name) ?? new Set()
    this.#valuesOf.set(name, values.add(value))
  }

  withdraw(name: string, value: string): void {
    const values = this.#valuesOf.get(name)
    values?.delete(value)
    if (values?.size === 0) this.#valuesOf.delete(name)
  }

  /** The TXT values of a lower-case name. */
  valuesOf(name: string): readonly string[] {
    return [...(this.#valuesOf.get(name) ?? [])]
  }

  /** True for the zone itself and everything below it. */
  holds(name: string): boolean {
    return name === this.name || name.endsWith(`.${this.name}`)
  }
}
