import type { FindingView } from '../../api/diagnosis/doctor.ts'

/** One link of the chain, from the settings to the service behind a tunnel. */
export type Finding = FindingView
export type Outcome = Finding['outcome']

export const good = (check: string, detail: string): Finding => {
  return { check, outcome: 'good', detail, remedy: null }
}

export const bad = (check: string, detail: string, remedy: string): Finding => {
  return { check, outcome: 'bad', detail, remedy }
}

export const skipped = (check: string, detail: string): Finding => {
  return { check, outcome: 'skipped', detail, remedy: null }
}
