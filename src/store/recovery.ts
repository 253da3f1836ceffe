import type { Damage, Inspection } from './damage.ts'
import { applyChange, type JournalContent, trailChangeOf } from './journal/journal-text.ts'
import { type Rows, sameRows } from './journal/rows.ts'
import { applyTrail, sumOfRows, type TrailChange } from './journal/trail.ts'

/** Copy of the rows that replaces a damaged database. */
export type Copy = 'database' | 'journal' | 'backup' | 'none'

/** Damage found when opening a database, and the recovery. Times are milliseconds since the epoch. */
export interface Healing {
  readonly damage: Damage
  readonly copy: Copy
  /** Time of the newest change in the copy. Undefined if there was no copy. */
  readonly restoredFrom: number | undefined
  /** Number of acknowledged changes that are lost, as far as they can be counted … */
  readonly missing: number
  /** … and whether more may be lost. */
  readonly mayBeMore: boolean
}

/** Whether acknowledged changes may be lost. */
export function isLossy({ missing, mayBeMore }: Healing): boolean {
  return missing > 0 || mayBeMore
}

/** A copy that can be read to its end. */
export interface Source {
  readonly copy: Exclude<Copy, 'none'>
  readonly n: number
  readonly madeAt: number
  /** All rows, without trails. */
  readonly rows: Rows
}

export interface BackupSource extends Source {
  readonly trails: Rows
}

/** Decision about a database that is being opened. */
export type Recovery =
  /** Uses it unchanged. `hasJournal`: its journal is usable too. */
  | { readonly kind: 'use'; readonly hasJournal: boolean; readonly healing: Healing | undefined }
  /** Replaces its content with these rows, as number `n`. */
  | {
      readonly kind: 'rebuild'
      readonly rows: Rows
      readonly n: number
      readonly hasJournal: boolean
      readonly healing: Healing
    }

export interface RecoverySources {
  readonly database: Inspection | Damage
  /** Time of the last write to the database file. */
  readonly writtenAt: number
  readonly journal: JournalContent | undefined
  /** Sound backups, newest first. Called if no newer copy is complete. */
  readonly backups: () => readonly BackupSource[]
}

/**
 * Decides which copy is correct. A commit comes before its line in the journal. So a sound database may be
 * one change ahead, and that change was not acknowledged. All other differences are damage.
 */
export function decide(evidence: RecoverySources): Recovery {
  return withoutLoss(evidence) ?? withLoss(evidence)
}

/** Returns a sound copy with all acknowledged changes. Undefined if this cannot be proven for any copy. */
function withoutLoss(evidence: RecoverySources): Recovery | undefined {
  const { database, journal } = evidence
  const use = (hasJournal: boolean) => ({ kind: 'use', hasJournal, healing: undefined }) as const
  const isSound = typeof database !== 'string' && database.isUsable
  if (isSound && !journal && !database.hasJournal) return use(false)
  if (!journal?.rows) return undefined
  const { rows, n, at, tail } = journal
  const ahead = typeof database === 'string' ? undefined : database.n - n
  if (isSound && ahead === 1 && tail !== 'damaged') return use(false)
  if (tail !== 'clean') return undefined
  const isSame = agree(database, journal)
  if (isSound && ahead === 0 && isSame) return use(true)
  // More than one change ahead: the journal is outdated, unless only the number differs.
  if (ahead !== undefined && ahead > 0 && !isSame) return undefined
  const damage =
    typeof database === 'string' ? database : database.n < n ? 'behind' : ('altered' as const)
  const trails = trailsOf(evidence)
  const healing = {
    damage,
    copy: 'journal',
    restoredFrom: at,
    missing: 0,
    mayBeMore: !trails.areWhole,
  } as const
  const all = new Map([...rows, ...trails.rows])
  return { kind: 'rebuild', rows: all, n, hasJournal: trails.areWhole, healing }
}

/** Whether the database has the same content as its journal. */
function agree(database: Inspection | Damage, journal: JournalContent | undefined): boolean {
  if (typeof database === 'string' || !journal?.rows) return false
  return database.sum === journal.trails.sum && sameRows(database.rows, journal.rows)
}

/**
 * Returns the rows of trails. Uses the first copy that is complete together with the changes in the journal,
 * which the sum proves. Otherwise uses the newest copy.
 */
function trailsOf(
  { database, journal, backups }: RecoverySources,
  later: readonly TrailChange[] = [],
): { readonly rows: Rows; readonly areWhole: boolean } {
  const changes = [...(journal?.trails.recent ?? []), ...later]
  const copies = [
    () => (typeof database === 'string' ? [] : [database.trails()]),
    () => backups().map(({ trails }) => trails),
    () => [new Map()],
  ]
  let newest: Rows | undefined
  for (const rows of lazily(copies)) {
    applyTrail(rows, changes)
    if (sumOfRows(rows) === journal?.trails.sum) return { rows, areWhole: true }
    newest ??= rows
  }
  return { rows: newest ?? new Map(), areWhole: false }
}

function* lazily<T>(lists: readonly (() => readonly T[])[]): Generator<T> {
  for (const list of lists) yield* list()
}

/** Returns the newest complete copy with the readable later changes, and the number of missing changes. */
function withLoss(evidence: RecoverySources): Recovery {
  const { database, writtenAt, journal, backups } = evidence
  const sources: Source[] = [...sourcesOf(database, writtenAt, journal), ...backups()]
  const newest = sources.reduce<Source | undefined>(
    (best, source) => (best && best.n >= source.n ? best : source),
    undefined,
  )
  const rows: Rows = newest?.rows ?? new Map()
  const since = newest?.n ?? 0
  // The file of a manually restored backup is newer than its rows.
  const times = sources.filter(({ n }) => n === since).map(({ madeAt }) => madeAt)
  const later = journal?.rest.filter(({ n }) => n > since).sort((a, b) => a.n - b.n) ?? []
  const last = Math.max(since, later.at(-1)?.n ?? 0, ...sources.map(({ n }) => n))
  let missing = last - since - new Set(later.map(({ n }) => n)).size
  for (const change of later) missing += applyChange(rows, change) > 0 ? 1 : 0
  // At most one line is lost: the incomplete one.
  const isTorn = journal?.tail === 'torn' && newest?.n === journal.n
  if (isTorn) missing += 1
  const isFile = newest?.copy === 'database' && later.length === 0
  const healing: Healing = {
    damage: typeof database === 'string' ? database : isFile ? 'unproven' : 'behind',
    copy: newest?.copy ?? 'none',
    restoredFrom: later.at(-1)?.at ?? (newest && Math.min(...times)),
    missing,
    mayBeMore: !isTorn,
  }
  const isUsable = isFile && typeof database !== 'string' && database.isUsable
  if (isUsable) return { kind: 'use', hasJournal: false, healing }
  const trails = trailsOf(
    evidence,
    later.flatMap((change) => trailChangeOf(change) ?? []),
  )
  const all = new Map([...rows, ...trails.rows])
  const mayBeMore = healing.mayBeMore || !trails.areWhole
  return {
    kind: 'rebuild',
    rows: all,
    n: last + 1,
    hasJournal: false,
    healing: { ...healing, mayBeMore },
  }
}

/**
 * Returns the readable copies. If database and journal differ, the journal comes first, because it has
 * checksums.
 */
function sourcesOf(
  database: Inspection | Damage,
  writtenAt: number,
  journal: JournalContent | undefined,
): Source[] {
  const lines: Source[] = journal?.rows
    ? [{ copy: 'journal', n: journal.n, madeAt: journal.at, rows: journal.rows }]
    : []
  if (typeof database === 'string') return lines
  const { n, rows } = database
  const file: Source = { copy: 'database', n, madeAt: writtenAt, rows }
  return agree(database, journal) ? [file, ...lines] : [...lines, file]
}
