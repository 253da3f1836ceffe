import { row, type TrialRow } from '../helpers/trials.ts'
import { LIMIT, type TrialHost } from './devices.ts'
import type { Fault } from './faults.ts'
import { findTwoHomes } from './home-watch.ts'
import { type LimitFindings, watchLimit } from './limit-watch.ts'
import { isServed, type Recovery, type Visit, type VisitLog } from './visit-log.ts'
import type { LostWrite, WriteLedger } from './write-ledger.ts'

/** How soon after a fault every name answers again. */
export const AGAIN_MS = 5_000
/** How soon after a cut link a gateway gives a device its names back, also without PostgreSQL. */
const BACK_MS = 2_000
/** How many lines there are for a bar that was missed. */
const FEW = 12
/** Names may be given up, and taken, for so long after a fault. */
const AFTERMATH_MS = 15_000

/** A fault that was; times in ms of the trial's clock. */
export interface PastFault {
  readonly number: number
  readonly fault: Fault
  readonly begin: number
  readonly end: number
  /** Until the next one. */
  readonly until: number
  readonly what: string
  /** Why it could not be carried through. */
  readonly error?: string
  /** Ms in which the trial itself stood still: such a fault is not judged. */
  readonly stalledMs: number
  /** When all links of agents broke. */
  readonly cuts: readonly number[]
}

/** What the trial came to: the table, and a line for each time that a bar was missed. */
export interface Findings {
  readonly rows: readonly TrialRow[]
  readonly missed: readonly string[]
}

export interface TrialRecord {
  readonly log: VisitLog
  readonly hosts: readonly TrialHost[]
  readonly faults: readonly PastFault[]
  readonly lost: readonly LostWrite[]
  readonly writes: Pick<WriteLedger, 'acknowledged' | 'refused'>
  /** Words for a moment. */
  readonly at: (ms: number) => string
}

export function judge(record: TrialRecord): Findings {
  const judged = [judgeHomes(record), judgeLimits(record), judgeWrites(record)]
  for (const name of new Set(record.faults.map(({ fault }) => fault.name))) {
    judged.push(judgeFault(record, name))
  }
  return {
    rows: judged.flatMap(({ rows }) => rows),
    missed: judged.flatMap(({ missed }) => missed),
  }
}

/** Such as `12.3 s, node killed #4`: what was going on. */
function when({ faults, at }: TrialRecord, ms: number): string {
  const during = faults.find(({ begin, end }) => begin <= ms && ms <= end)
  const before = faults.findLast(({ end }) => end < ms)
  const past = during ?? before
  if (!past) return `${at(ms)}, before any fault`
  const where = during ? 'during' : `${((ms - past.end) / 1_000).toFixed(1)} s after`
  return `${at(ms)}, ${where} ${past.fault.name} #${past.number} (${past.what})`
}

function judgeHomes(record: TrialRecord): Findings {
  const visits = record.log.all.filter(({ isDownload }) => !isDownload)
  const found = findTwoHomes(visits)
  const answers = visits.filter(({ endpoint }) => endpoint !== undefined).length
  return {
    rows: [
      row('two live homes', `${found.length} in ${answers} answers`, 'none', found.length === 0),
    ],
    missed: found.map(
      ({ host, endpoints, at }) =>
        `two live homes: ${host}, ${endpoints.join(' and ')}, ${when(record, at)}`,
    ),
  }
}

function judgeLimits(record: TrialRecord): Findings {
  const { hosts, faults, log } = record
  const timesOf = (isWanted: (fault: Fault) => boolean) =>
    faults
      .filter(({ fault }) => isWanted(fault))
      .map(({ begin, end }) => ({ begin, end: end + AFTERMATH_MS }))
  const options = {
    ...LIMIT,
    planned: timesOf(({ isPlanned }) => isPlanned),
    unplanned: timesOf(({ isPlanned }) => !isPlanned),
    givenUp: timesOf(({ moves }) => moves),
  }
  const found: LimitFindings[] = hosts
    .filter(({ isLimited }) => isLimited)
    .map(({ host }) =>
      watchLimit(
        log.all.filter((visit) => visit.host === host),
        options,
      ),
    )
  const over = found.flatMap((it) => it.over)
  const most = Math.max(0, ...found.map((it) => it.most))
  const windows = found.reduce((sum, it) => sum + it.windows, 0)
  return {
    rows: [
      row(
        'limits',
        `at most ${most} in ${windows} windows`,
        `<= ${LIMIT.capacity} in ${LIMIT.windowMs / 1_000} s`,
        over.length === 0,
      ),
    ],
    missed: over.map(({ host, at, count }) => `limits: ${host}, ${count}, ${when(record, at)}`),
  }
}

function judgeWrites(record: TrialRecord): Findings {
  const { lost, writes } = record
  const { acknowledged, refused } = writes
  const measured = `${lost.length} of ${acknowledged} lost; ${refused} refused`
  return {
    rows: [row('acknowledged writes', measured, 'none lost', lost.length === 0)],
    missed: lost.map(
      ({ what, id, name, node, missingAt, at }) =>
        `acknowledged writes: ${what} of ${name} (${id}) at node ${node}, not so at node ${missingAt}, ${when(record, at)}`,
    ),
  }
}

function judgeFault(record: TrialRecord, name: string): Findings {
  const all = record.faults.filter(({ fault }) => fault.name === name)
  const past = all.filter(({ stalledMs }) => stalledMs === 0)
  if (past.length === 0) {
    const measured = `${all.length} times, not judged: the trial stood still`
    return { rows: [row(name, measured, 'judged', false)], missed: [`${name}: ${measured}`] }
  }
  const errors = past.flatMap((it) =>
    it.error === undefined ? [] : [`${name} #${it.number}, ${record.at(it.begin)}: ${it.error}`],
  )
  const found = past[0]?.fault.isPlanned ? judgePlanned(record, past) : judgeUnplanned(record, past)
  const links = past.some(({ cuts }) => cuts.length > 0) ? judgeLinks(record, past) : NOTHING
  return {
    rows: [...found.rows, ...links.rows].map((it) => ({
      ...{ ...it, what: name, isMet: it.isMet && errors.length === 0 },
    })),
    missed: [...errors, ...few([...found.missed, ...links.missed]).map((it) => `${name} ${it}`)],
  }
}

/** The first of many: they are of the same fault. */
function few(lines: readonly string[]): string[] {
  const shown = lines.slice(0, FEW)
  return lines.length > FEW ? [...shown, `and ${lines.length - FEW} more`] : shown
}

function judgeUnplanned({ log, at }: TrialRecord, past: readonly PastFault[]): Findings {
  const found = past.map((it) => ({ it, recoveries: log.recoveries(it.end, it.until) }))
  const late = found.flatMap(({ it, recoveries }) =>
    recoveries.filter(({ ms }) => ms > AGAIN_MS).map((recovery) => ({ it, recovery })),
  )
  const all = found.flatMap(({ recoveries }) => recoveries).sort((a, b) => b.ms - a.ms)
  const visits = past.flatMap(({ begin, end }) => log.during(begin, end))
  const [failed, asked] = count(visits)
  const [balanced] = count(visits.filter(({ entrance }) => entrance === 'balancer'))
  const worst = all[0] ? `all again after ${words(all[0])}` : 'nobody came'
  return {
    rows: [
      row(
        '',
        `${past.length} times, ${worst}; ${failed} of ${asked} failed meanwhile, ${balanced} of them at the balancer`,
        `all again within ${AGAIN_MS / 1_000} s`,
        late.length === 0 && all.length > 0,
      ),
    ],
    missed: late.map(
      ({ it, recovery }) =>
        `#${it.number} (${it.what}), over at ${at(it.end)}: ${recovery.host} at ${recovery.entrance} again after ${words(recovery)}, before that ${recovery.last}`,
    ),
  }
}

const NOTHING: Findings = { rows: [], missed: [] }

/**
 * Names of our agents after a cut. A device with the vendor's SDK alone may come to a gateway that does not
 * hold its name, and waits for PostgreSQL there. What was under way on a link may fail.
 */
function judgeLinks({ log, hosts, at }: TrialRecord, past: readonly PastFault[]): Findings {
  const own = hosts.filter(({ kind }) => kind === 'plain' || kind === 'limited')
  const back: { readonly ms: number; readonly line: string }[] = []
  const failed: string[] = []
  let asked = 0
  let underWay = 0
  for (const it of past) {
    for (const cut of it.cuts) {
      const visits = log.during(cut, it.until)
      for (const { host } of own) {
        const after = visits.filter((visit) => visit.host === host && visit.begin > cut)
        const ms = Math.min(...after.filter(isServed).map(({ end }) => end)) - cut
        back.push({ ms, line: `#${it.number}: ${host} back ${words({ ms })} after the cut` })
        const lost = after.filter((visit) => !isServed(visit))
        asked += after.length
        failed.push(...lost.map((visit) => `#${it.number} at ${at(visit.begin)}: ${told(visit)}`))
      }
      underWay += visits.filter((visit) => visit.begin <= cut && !isServed(visit)).length
    }
  }
  const unknown = past
    .flatMap(({ begin, until }) => log.during(begin, until))
    .filter(({ outcome }) => outcome.startsWith('404'))
  const worst = Math.max(...back.map(({ ms }) => ms))
  const late = back.filter(({ ms }) => ms > BACK_MS)
  const measured = `names back ${words({ ms: worst })} after the cut; ${failed.length} of ${asked} failed, and ${underWay} under way at the cut; ${unknown.length} x 404`
  const isMet = late.length + failed.length + unknown.length === 0
  return {
    rows: [row('', measured, `within ${BACK_MS / 1_000} s, 0 failed, no 404`, isMet)],
    missed: [...late.map(({ line }) => line), ...failed, ...unknown.map(told)],
  }
}

const told = ({ host, entrance, outcome, begin, end }: Visit) =>
  `${host} at ${entrance}: ${outcome} after ${seconds(end - begin)}`

function judgePlanned({ log, at }: TrialRecord, past: readonly PastFault[]): Findings {
  // What had not ended then, the next fault may have met.
  const visits = past.flatMap((it) => {
    const during = log.during(it.begin, it.until).filter(({ end }) => end <= it.until)
    return during.map((visit) => ({ it, visit }))
  })
  const [failed, asked] = count(visits.map(({ visit }) => visit))
  const downloads = visits.filter(({ visit }) => visit.isDownload).length
  return {
    rows: [
      row(
        '',
        `${past.length} times, ${failed} of ${asked} failed (${downloads} downloads)`,
        '0 failed',
        failed === 0 && downloads > 0,
      ),
    ],
    missed: visits
      .filter(({ visit }) => !isServed(visit))
      .map(
        ({ it, visit }) =>
          `#${it.number} (${it.what}) at ${at(it.begin)}: ${visit.isDownload ? 'download of ' : ''}${visit.host} at ${visit.entrance}, asked at ${at(visit.begin)}: ${visit.outcome} after ${seconds(visit.end - visit.begin)}`,
      ),
  }
}

function count(visits: readonly Visit[]): [failed: number, asked: number] {
  return [visits.filter((visit) => !isServed(visit)).length, visits.length]
}

const words = ({ ms }: Pick<Recovery, 'ms'>) => (Number.isFinite(ms) ? seconds(ms) : 'never')
const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`
