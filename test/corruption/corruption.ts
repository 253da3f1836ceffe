import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { isWritable } from '../../src/store/data-folder.ts'
import type { StorageReport } from '../../src/store/database.ts'
import { type Rows, readRows, sameRows } from '../../src/store/journal/rows.ts'
import { Sqlite } from '../../src/store/sqlite.ts'
import { seeded } from '../helpers/seeded.ts'
import { harm } from './harm.ts'
import type { OpenOptions, Owner } from './owners.ts'

/** Which files of a database are damaged in one run, by the ends of their names. */
export const TARGETS: Readonly<Record<string, readonly string[]>> = {
  database: [''],
  log: ['-wal'],
  'database and log': ['', '-wal'],
  journal: ['.journal'],
  'log and journal': ['-wal', '.journal'],
  'all three': ['', '-wal', '.journal'],
}

/**
 * What became of a start. `sound`: nothing was noticed and nothing is missing; `healed`: all is there;
 * `told`: changes are missing, and the report says so; `alarm`: it says so, and nothing is missing.
 */
export type Outcome = 'sound' | 'healed' | 'told' | 'alarm'

/** What must not be: a start that fails or asks for another, or changes that are gone unsaid. */
export interface Finding {
  readonly run: number
  readonly harms: readonly string[]
  readonly what: string
}

export interface Tally {
  readonly runs: number
  readonly outcomes: Readonly<Record<Outcome, number>>
  readonly findings: readonly Finding[]
}

const CHANGES = 40
const log = createLogger('silent')

/** A database of an owner as a power cut leaves it: half of its changes in the log alone. */
export class Specimen {
  readonly #owner: Owner
  readonly #folder: string
  readonly #expected: Rows
  readonly #close: () => void

  private constructor(owner: Owner, folder: string, expected: Rows, close: () => void) {
    this.#owner = owner
    this.#folder = folder
    this.#expected = expected
    this.#close = close
  }

  static make(owner: Owner): Specimen {
    const folder = mkdtempSync(join(isWritable('/dev/shm') ? '/dev/shm' : tmpdir(), 'corruption-'))
    const first = owner.open(folder, options())
    for (let number = 1; number <= CHANGES / 2; number += 1) first.change(number)
    // Leaves a backup and no log.
    first.database.close()
    const second = owner.open(folder, options())
    for (let number = CHANGES / 2 + 1; number <= CHANGES; number += 1) second.change(number)
    const expected = rowsOf(join(folder, owner.file))
    return new Specimen(owner, folder, expected, () => second.database.close())
  }

  /** Damages copies, as often as `runs` says, and starts each of them twice. */
  examine(targets: readonly string[], runs: number, seed: number): Tally {
    const outcomes = { sound: 0, healed: 0, told: 0, alarm: 0 }
    const findings: Finding[] = []
    for (let run = 0; run < runs; run += 1) {
      const random = seeded(seed * 100_003 + run)
      const folder = `${this.#folder}-copy`
      cpSync(this.#folder, folder, { recursive: true })
      const path = join(folder, this.#owner.file)
      const harms = targets.map((end) => `${end || 'database'}: ${harm(path + end, random)}`)
      try {
        outcomes[this.#startTwice(folder)] += 1
      } catch (error) {
        findings.push({ run, harms, what: error instanceof Error ? error.message : String(error) })
      } finally {
        rmSync(folder, { recursive: true })
      }
    }
    return { runs, outcomes, findings }
  }

  remove(): void {
    this.#close()
    rmSync(this.#folder, { recursive: true })
  }

  /** Throws what must not be. The second start must find what the first one left, and still say so. */
  #startTwice(folder: string): Outcome {
    const first = this.#start(folder, () => {})
    const isWhole = sameRows(first.rows, this.#expected)
    const isTold = first.report.losses.length > 0
    if (!isWhole && !isTold)
      throw new Error(`silent loss (healing ${first.report.healing?.damage})`)
    const second = this.#start(folder, (change) => change(CHANGES + 1))
    if (second.report.healing) throw new Error(`damaged again: ${second.report.healing.damage}`)
    if (!sameRows(second.before, first.rows)) throw new Error('the second start has other rows')
    if (second.report.losses.length !== first.report.losses.length) throw new Error('forgotten')
    if (!isWhole) return 'told'
    if (isTold) return 'alarm'
    return first.report.healing ? 'healed' : 'sound'
  }

  #start(
    folder: string,
    work: (change: (number: number) => void) => void,
  ): { readonly before: Rows; readonly rows: Rows; readonly report: StorageReport } {
    const restarts: string[] = []
    const opened = this.#owner.open(
      folder,
      options((reason) => restarts.push(reason)),
    )
    try {
      const path = join(folder, this.#owner.file)
      const before = rowsOf(path)
      work(opened.change)
      opened.database.ping()
      const report = opened.database.report()
      if (report.fault) throw new Error(`starts as ${report.fault}`)
      if (restarts.length > 0) throw new Error(`asks for another start: ${restarts[0]}`)
      return { before, rows: rowsOf(path), report }
    } finally {
      opened.database.close()
    }
  }
}

function options(onRestartNeeded: (reason: string) => void = () => {}): OpenOptions {
  return { log, clock: systemClock, onRestartNeeded }
}

function rowsOf(path: string): Rows {
  const connection = new Sqlite(path)
  try {
    return readRows(connection)
  } finally {
    connection.close()
  }
}
