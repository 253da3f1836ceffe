import type { Connection } from './sqlite.ts'
import { faultOf } from './storage-error.ts'

/** Why a database file cannot be used. */
export type Damage = 'missing' | 'empty' | 'foreign' | 'corrupt'

export interface DamageCheck {
  /** The mark that the file must carry. */
  readonly applicationId: number
  /** True when there was a database before: then an empty one is a loss, not a first start. */
  readonly wasInitialised: boolean
}

/** Looks through an open database; undefined when it is sound and ours, or new. */
export function findDamage(
  connection: Connection,
  { applicationId, wasInitialised }: DamageCheck,
): Damage | undefined {
  try {
    const mark = connection.pragma('application_id', { simple: true })
    const tables = connection.prepare('SELECT count(*) FROM sqlite_schema').pluck().get()
    if (mark === 0 && tables === 0) return wasInitialised ? 'empty' : undefined
    if (mark !== applicationId) return 'foreign'
    return connection.pragma('quick_check(1)', { simple: true }) === 'ok' ? undefined : 'corrupt'
  } catch (error) {
    if (faultOf(error) === 'damaged') return 'corrupt'
    throw error
  }
}
