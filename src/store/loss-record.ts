import { existsSync, readFileSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import * as z from 'zod'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import { type Healing, isLossy } from './recovery.ts'

/** Maximum number of entries. The oldest and the newest are always kept. */
const MAX_RECORDS = 10

const LossSchema = z.strictObject({
  foundAt: z.number(),
  damage: z.enum(['missing', 'empty', 'foreign', 'corrupt', 'behind', 'altered', 'unproven']),
  copy: z.enum(['database', 'journal', 'backup', 'none']),
  restoredFrom: z.number().optional(),
  missing: z.number(),
  mayBeMore: z.boolean(),
})

/** A possible loss of changes, until it is confirmed. Times are milliseconds since the epoch. */
export type Loss = Healing & { readonly foundAt: number }

/** Possible losses of a database, stored next to it until they are confirmed. */
export class LossRecord {
  readonly #path: string

  /** `path`: the database. */
  constructor(path: string) {
    this.#path = `${path}.losses`
  }

  /** Returns the losses, oldest first. Throws the system's error. */
  list(): readonly Loss[] {
    if (!existsSync(this.#path)) return []
    const { data } = z.array(LossSchema).safeParse(parseOrNull(readFileSync(this.#path, 'utf8')))
    return data?.map((loss) => ({ ...loss, restoredFrom: loss.restoredFrom })) ?? [UNREADABLE]
  }

  add(healing: Healing, foundAt: number): void {
    if (!isLossy(healing)) return
    const kept = this.list()
    // After a power cut during the recovery, the same loss is found again.
    const others = kept.filter((loss) => !isSame(loss, healing))
    const bounded =
      others.length < MAX_RECORDS ? others : [...others.slice(0, 1), ...others.slice(2)]
    writeFileDurably(this.#path, `${JSON.stringify([...bounded, { ...healing, foundAt }])}\n`)
  }

  /** Deletes the losses after a user has seen them. Returns them. */
  confirm(): readonly Loss[] {
    const losses = this.list()
    if (losses.length === 0) return losses
    rmSync(this.#path, { force: true })
    syncFolder(dirname(this.#path))
    return losses
  }
}

/** An unreadable record shows only that there was a loss. */
const UNREADABLE: Loss = {
  foundAt: 0,
  damage: 'corrupt',
  copy: 'none',
  restoredFrom: undefined,
  missing: 0,
  mayBeMore: true,
}

/** Whether nothing of the database was left. An unreadable record does not show it. */
export const isTotalLoss = ({ copy, foundAt }: Loss) => copy === 'none' && foundAt > 0

/** Describes losses in one sentence for people. Undefined if there are no losses. */
export function describeLosses(losses: readonly Loss[]): string | undefined {
  const last = losses.at(-1)
  if (!last) return undefined
  if (losses.some(isTotalLoss))
    return 'the database was damaged, and no backup was found: all its data is lost'
  const missing = losses.reduce((sum, loss) => sum + loss.missing, 0)
  const mayBeMore = losses.some((loss) => loss.mayBeMore)
  return `the database was damaged: ${countOf(missing, mayBeMore)} may be missing${copyOf(last)}`
}

function countOf(missing: number, mayBeMore: boolean): string {
  if (missing === 0) return 'the latest changes'
  const changes = missing === 1 ? '1 change' : `${missing} changes`
  return mayBeMore ? `${changes} or more` : changes
}

function copyOf({ copy, restoredFrom }: Loss): string {
  if (copy === 'none') return ''
  const time = new Date(restoredFrom ?? 0).toISOString()
  return copy === 'database' ? ` (last written ${time})` : ` (restored from a ${copy} of ${time})`
}

function isSame(loss: Loss, healing: Healing): boolean {
  const { foundAt: _, ...rest } = loss
  return JSON.stringify(rest) === JSON.stringify(healing)
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
