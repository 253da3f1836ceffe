/** What a name server has to know of the zone in which challenges are answered. */
export interface ZoneView {
  /** The name above all others in it, lower case. */
  readonly name: string
  /** The TXT values of a lower-case name; undefined when nobody knows at the moment. */
  valuesOf(name: string): readonly string[] | undefined
}

/** The answers to ACME's DNS challenges (RFC 8555 section 8.4), there while they are asked for. */
export class ChallengeZone implements ZoneView {
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

  valuesOf(name: string): readonly string[] {
    return [...(this.#valuesOf.get(name) ?? [])]
  }
}

/** True for the zone itself and everything below it. */
export function isInZone(name: string, { name: zone }: Pick<ZoneView, 'name'>): boolean {
  return name === zone || name.endsWith(`.${zone}`)
}
