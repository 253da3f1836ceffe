import * as z from 'zod'
import type { StorageReport } from './file-database.ts'
import { isTotalLoss } from './loss-record.ts'
import type { Healing } from './recovery.ts'

const Time = z.string().meta({ format: 'date-time' })
const healed = {
  damage: z
    .enum(['missing', 'empty', 'foreign', 'corrupt', 'behind', 'altered', 'unproven'])
    .describe('damage found in the database'),
  copy: z.enum(['database', 'journal', 'backup', 'none']).describe('copy that was restored'),
  restored_from: Time.nullable().describe('time of the copy'),
  missing: z.number().min(0).describe('number of acknowledged changes known to be missing'),
  may_be_more: z.boolean().describe('true if more changes may be missing'),
}

/** State of a storage, as shown to API clients. */
export const StorageView = z.strictObject({
  fault: z.string().nullable(),
  problem: z.string().nullable(),
  healed: z.strictObject(healed).nullable().describe('damage found at this start'),
  unconfirmed: z
    .array(z.strictObject({ found_at: Time, ...healed }))
    .readonly()
    .describe('possible data loss, until confirmed with POST /storage/confirm'),
  last_backup_at: Time.nullable(),
  put_aside: z.array(z.string()).readonly(),
})
export type StorageView = z.infer<typeof StorageView>

export function storageView(report: StorageReport): StorageView {
  const { fault, problem, healing, losses, lastBackupAt, putAside } = report
  return {
    fault: fault ?? null,
    problem: problem ?? null,
    healed: healing ? healingView(healing) : null,
    unconfirmed: losses.map((loss) => ({
      found_at: timeOrNull(loss.foundAt) ?? '',
      ...healingView(loss),
    })),
    last_backup_at: timeOrNull(lastBackupAt),
    put_aside: putAside,
  }
}

/** Commands that confirm losses and that restore a backup. */
interface StorageCommands {
  readonly confirm: string
  readonly restore: string
}

/** Problems of a storage for people, one sentence each. */
export function storageProblems(
  { problem, lossProblem, losses }: StorageReport,
  { confirm, restore }: StorageCommands,
): readonly string[] {
  const first = losses.some(isTotalLoss)
    ? `Restore a backup with \`${restore} FILE\`, or create the data again`
    : 'Check your data'
  const loss = lossProblem && `${lossProblem}. ${first}, then run \`${confirm}\``
  return [problem, loss].filter((sentence) => sentence !== undefined)
}

function healingView({ damage, copy, restoredFrom, missing, mayBeMore }: Healing) {
  return {
    damage,
    copy,
    restored_from: timeOrNull(restoredFrom),
    missing,
    may_be_more: mayBeMore,
  }
}

function timeOrNull(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString()
}
