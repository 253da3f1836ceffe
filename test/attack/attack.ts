import type { AttackSite } from './attack-site.ts'

/** One thing that was measured, and the bar that it has to meet. */
export interface AttackRow {
  readonly what: string
  readonly measured: string
  readonly bar: string
  readonly isMet: boolean
}

/** What a file `*-attack.ts` exports as `attack`. */
export interface Attack {
  readonly name: string
  /** One line for `--help`. */
  readonly what: string
  /** Settings of gateway and agent, beside those of every site. */
  readonly env?: Readonly<Record<string, string>>
  /** Attacks a site that is there for it alone, and looks at what others notice. */
  run(site: AttackSite): Promise<readonly AttackRow[]>
}

export function row(what: string, measured: string, bar: string, isMet: boolean): AttackRow {
  return { what, measured, bar, isMet }
}
