import type { AwayName } from './away-name.ts'
import type { Endpoint } from './endpoint.ts'

/** Who has a name: an endpoint that is online, or one whose device is away. */
export type NameState = Endpoint | AwayName

/** Who has which host, wildcards among them; one for each name. */
export class HostTable {
  readonly #exact = new Map<string, NameState>()
  /** Keyed by the part after `*`, with its dot: `.example.com`. */
  readonly #wildcards = new Map<string, NameState>()

  get size(): number {
    return this.#exact.size + this.#wildcards.size
  }

  set(state: NameState): void {
    const [hosts, key] = this.#placeOf(state.host)
    hosts.set(key, state)
  }

  /** Who has exactly this host. */
  get(host: string): NameState | undefined {
    const [hosts, key] = this.#placeOf(host)
    return hosts.get(key)
  }

  /** False when this very one was not there. */
  remove(state: NameState): boolean {
    const [hosts, key] = this.#placeOf(state.host)
    return hosts.get(key) === state && hosts.delete(key)
  }

  /**
   * Who answers for a host: the nearest name that is online, or held at `now`, else the nearest that
   * is away.
   */
  match(host: string, now: () => number): NameState | undefined {
    const exact = this.#exact.get(host)
    if (exact && exact.type !== 'away') return exact
    let away: AwayName | undefined
    for (const state of this.#statesFor(host, exact)) {
      if (state.type !== 'away' || state.isHeld(now())) return state
      away ??= state
    }
    return away && now() < away.forgottenAt ? away : undefined
  }

  *all(): Generator<NameState> {
    yield* this.#exact.values()
    yield* this.#wildcards.values()
  }

  *#statesFor(host: string, exact: NameState | undefined): Generator<NameState> {
    if (exact) yield exact
    if (this.#wildcards.size === 0) return
    // A dot at 0 would leave nothing for the star to stand for.
    for (let dot = host.indexOf('.', 1); dot !== -1; dot = host.indexOf('.', dot + 1)) {
      const wildcard = this.#wildcards.get(host.slice(dot))
      if (wildcard) yield wildcard
    }
  }

  #placeOf(host: string): [Map<string, NameState>, string] {
    return host.startsWith('*.') ? [this.#wildcards, host.slice(1)] : [this.#exact, host]
  }
}
