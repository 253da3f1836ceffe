import { SETTINGS } from '../../settings/settings.ts'

/** One row of the settings table. */
export interface SettingRow {
  readonly name: string
  readonly fallback: string
  /** Whether the program computes the default from other settings or places. */
  readonly isComputed: boolean
  readonly meaning: string
}

/** The settings table as docs/reference/settings.md and `help settings` show it. */
export function settingRows(): SettingRow[] {
  return Object.entries(SETTINGS).map(([name, { fallback, computed, meaning }]) => ({
    name,
    fallback: computed || fallback,
    isComputed: computed !== '',
    meaning,
  }))
}
