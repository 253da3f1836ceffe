/** What a check came to; `skipped` where something before it failed, or only the agent can know. */
export type Outcome = 'good' | 'bad' | 'skipped'

/** One link of the chain, from the settings to the service behind a tunnel. */
export interface Finding {
  /** Stable, for programs: `settings`, `dns`, `tunnel cam.site.example.com`. */
  readonly check: string
  readonly outcome: Outcome
  /** What was found, one line. */
  readonly detail: string
  /** What to do about it, one sentence; null when there is nothing to do. */
  readonly remedy: string | null
}

export const good = (check: string, detail: string): Finding => {
  return { check, outcome: 'good', detail, remedy: null }
}

export const bad = (check: string, detail: string, remedy: string): Finding => {
  return { check, outcome: 'bad', detail, remedy }
}

export const skipped = (check: string, detail: string): Finding => {
  return { check, outcome: 'skipped', detail, remedy: null }
}
