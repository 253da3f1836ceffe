import { readdirSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Program } from '../helpers/program.ts'
import type { SiteProgram } from '../helpers/site.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import { unitProgram } from '../helpers/unit-program.ts'

const REPORT = join(import.meta.dirname, 'memory-report.cjs')

const { command, env } = unitProgram('device-gateway')

/** A gateway as its unit starts it, that collects garbage when it is asked what memory it has. */
export const REPORTING_GATEWAY: SiteProgram = {
  command: [process.execPath, '--require', REPORT, ...(command ?? []).slice(1)],
  env,
}

/** What it holds, in bytes, after garbage was collected. */
export interface Held {
  readonly sockets: number
  readonly heapUsed: number
  /** With `arrayBuffers`. */
  readonly external: number
  readonly arrayBuffers: number
  readonly rss: number
}

export async function heldBy(gateway: Program): Promise<Held> {
  const { length } = gateway.stderr
  gateway.child.kill('SIGUSR2')
  for (;;) {
    await sleep(50)
    const line = gateway.stderr
      .slice(length)
      .split('\n')
      .find((text) => text.startsWith('{"heapUsed"') && text.endsWith('}'))
    if (line) return { ...JSON.parse(line), sockets: socketsOf(gateway.pid) }
  }
}

function socketsOf(pid: number): number {
  const folder = `/proc/${pid}/fd`
  const isSocket = (fd: string) => {
    try {
      return readlinkSync(join(folder, fd)).startsWith('socket:')
    } catch {
      return false
    }
  }
  return readdirSync(folder).filter(isSocket).length
}

const MB = 1_000_000
/** Of what was there before. */
const MOST = { heapUsed: 1.1, external: 1.1, rss: 1.5 }

interface Comparison {
  readonly before: Held
  readonly during?: Held
  readonly after: Held
  /** When nobody had come yet. */
  readonly startRss?: number
}

const inMb = (bytes: number) => `${(bytes / MB).toFixed(1)} MB`

/** No socket is left, and memory is what it was. */
export function leftRows({ before, during, after, startRss }: Comparison): TrialRow[] {
  const grown = (what: string, part: keyof typeof MOST, more = '') => {
    const between = during ? `, meanwhile ${inMb(during[part])}` : ''
    const measured = `${inMb(after[part])}, before ${inMb(before[part])}${between}${more}`
    return row(what, measured, `< ${MOST[part]} x`, after[part] < MOST[part] * before[part])
  }
  const sockets = `${after.sockets}, before ${before.sockets}`
  return [
    row('sockets of the gateway', sockets, 'as before', after.sockets <= before.sockets),
    grown('heap', 'heapUsed'),
    grown('external memory', 'external'),
    grown('resident memory', 'rss', startRss ? `, at the start ${inMb(startRss)}` : ''),
  ]
}
