import { BucketTable } from './bucket-table.ts'
import { SlidingWindow, SPARE_WORD } from './sliding-window.ts'

/** A bucket remembers who owns it, in a word that its window leaves. */
const OWNER = SPARE_WORD

/** Buckets of one size, and where the sweep stands among them. */
export interface Tier {
  readonly window: SlidingWindow
  readonly table: BucketTable
  sweepAt: number
  sweepDue: number
}

export function createTier(capacity: number, windowMs: number): Tier {
  const window = new SlidingWindow(capacity, windowMs)
  return { window, table: new BucketTable(window.words), sweepAt: 0, sweepDue: 0 }
}

export function admitTo({ window, table }: Tier, row: number, now: number): number {
  return window.admit(table.page(row), table.offset(row), now)
}

export function ownerOf({ table }: Tier, row: number): number {
  return table.page(row).words[table.offset(row) + OWNER] as number
}

export function setOwner({ table }: Tier, row: number, owner: number): void {
  table.page(row).words[table.offset(row) + OWNER] = owner
}
