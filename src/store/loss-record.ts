import { existsSync, readFileSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import * as z from 'zod'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import { type Healing, isLossy } from './recovery.ts'

/** More are not told apart: the oldest says since when, the newest what was last. */
const MOST_KEPT = 10

const LossSchema = z.strictObject({
  foundAt: z.number(),
  damage: z.enum(['missing', 'empty', 'foreign', 'corrupt', 'behind', 'altered', 'unproven']),
  copy: z.enum(['database', 'journal', 'backup', 'none']),
  restoredFrom: z.number().optional(),
  missing: z.number(),
  mayBeMore: z.boolean(),
})

/** Changes that may be gone, until somebody has seen it. Times are milliseconds since the epoch. */
export type Loss = Healing & { readonly foundAt: number }

/** What may be missing from a database, kept beside it until it is confirmed. */
export class LossRecord {
  readonly #path: string

  /** `path`: the database. */
  constructor(path: string) {
    this.#path = `${path}.losses`
  }

  /** Oldest first. Throws what the system says. */
  list(): readonly Loss[] {
    if (!existsSync(this.#path)) return []
    const { data } = z.array(LossSchema).safeParse(parseOrNull(readFileSync(this.#path, 'utf8')))
    return data?.map((loss) => ({ ...loss, restoredFrom: loss.restoredFrom })) ?? [UNREADABLE]
  }

  add(healing: Healing, foundAt: number): void {
    if (!isLossy(healing)) return
    const kept = this.list()
    // After a power cut in the middle of the healing it is found again.
    const others = kept.filter((loss) => !isSame(loss, healing))
    const bounded = others.length < MOST_KEPT ? others : [...others.slice(0, 1), ...others.slice(2)]
    writeFileDurably(this.#path, `${JSON.stringify([...bounded, { ...healing, foundAt }])}\n`)
  }

  /** Somebody has seen it: forgets. Answers what was forgotten. */
  confirm(): readonly Loss[] {
    const losses = this.list()
    if (losses.length === 0) return losses
    rmSync(this.#path, { force: true })
    syncFolder(dirname(this.#path))
    return losses
  }
}

/** A record that cannot be read says that there was a loss, and no more. */
const UNREADABLE: Loss = {
  foundAt: 0,
  damage: 'corrupt',
  copy: 'none',
  restoredFrom: undefined,
  missing: 0,
  mayBeMore: true,
}

/** What people are told about losses, one sentence that says what to do; undefined when there are none. */
export function describeLosses(losses: readonly Loss[]): string | undefined {
  const last = losses.at(-1)
  if (!last) return undefined
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
  if (copy === 'none') return ', and no backup was found'
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
