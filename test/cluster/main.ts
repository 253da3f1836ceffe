/**
 * `npm run test:cluster [-- MINUTES] [--seed N] [--fault NAME …] [--delay MS] [--json]`: three gateways on one PostgreSQL, a process
 * each, twenty agents and visitors, and faults at random. Ends with 1 when a bar was missed, with 2 at
 * wrong usage or where PostgreSQL is missing.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { parseArgs } from 'node:util'
import { printTable } from '../../bench/tools.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { runClusterTrial } from './cluster-trial.ts'
import { FAULTS } from './faults.ts'

const USAGE = `Usage: npm run test:cluster [-- MINUTES] [--seed N] [--fault NAME …] [--delay MS] [--json]

Three gateways on one PostgreSQL, twenty agents and visitors, for MINUTES (15 unless given) of
faults. The seed decides which, and how long. Prints what was measured beside its bar.
--fault takes one kind alone, and may be given again: ${FAULTS.map(({ name }) => name).join(', ')}.
--delay is the round trip to PostgreSQL and between the gateways (0 unless given).
Ends with 1 when a bar was missed, with 2 at wrong usage or where PostgreSQL is missing.
`
const { stdout, stderr } = process

function readWords() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seed: { type: 'string' },
      fault: { type: 'string', multiple: true, default: FAULTS.map(({ name }) => name) },
      delay: { type: 'string', default: '0' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  const minutes = Number(positionals[0] ?? 15)
  const roundTripMs = Number(values.delay)
  const seed = Number(values.seed ?? Date.now() % 1_000_000)
  if (positionals.length > 1 || !(minutes > 0) || !Number.isSafeInteger(seed)) {
    throw new Error('MINUTES is a number above 0, N a whole one.')
  }
  if (!(roundTripMs >= 0)) throw new Error('--delay takes milliseconds.')
  const faults = values.fault.map((wanted) => {
    const fault = FAULTS.find(({ name }) => name === wanted)
    if (!fault) throw new Error(`There is no fault ${wanted}.`)
    return fault
  })
  return { ...values, minutes, seed, faults, roundTripMs }
}

async function main({
  minutes,
  seed,
  faults,
  roundTripMs,
  json,
}: ReturnType<typeof readWords>): Promise<number> {
  stderr.write(`seed ${seed}, ${minutes} min of faults\n`)
  const begun = performance.now()
  const say = (line: string) => stderr.write(`${line}\n`)
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-cluster-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))
  const postgres = await TestPostgres.start({ syncs: true })
  try {
    const { rows, missed } = await runClusterTrial({
      ...{ folder, postgres, minutes, seed, faults, roundTripMs, say },
    })
    for (const line of missed) say(`missed: ${line}`)
    const isMet = rows.every((it) => it.isMet)
    if (json) {
      const seconds = Math.round((performance.now() - begun) / 1_000)
      const shown = rows.map(({ what, measured, bar, isMet: met }) => ({
        trial: what,
        measured,
        bar,
        met,
      }))
      stdout.write(`${JSON.stringify({ seed, minutes, seconds, trials: shown, missed })}\n`)
    } else {
      printTable(
        ['trial', 'measured', 'bar', 'met'],
        rows.map((it) => [it.what, it.measured, it.bar, it.isMet ? 'met' : 'NOT MET']),
      )
    }
    return isMet ? 0 : 1
  } finally {
    await postgres.remove()
  }
}

let words: ReturnType<typeof readWords>
try {
  words = readWords()
  if (words.help) {
    stdout.write(USAGE)
    process.exit(0)
  }
  if (!hasPostgres) throw new Error('PostgreSQL is missing: apt-get install postgresql')
} catch (error) {
  stderr.write(`${(error as Error).message}\n\n${USAGE}`)
  process.exit(2)
}
process.exit(
  await main(words).catch((error: Error) => {
    stderr.write(`${error.stack}\n`)
    return 1
  }),
)
