/** `npm run test:mutation [-- room …] [--incremental]`: changes the code of a room, and says what no test notices. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Stryker } from '@stryker-mutator/core'
import { ROOMS, type Room } from './rooms.ts'

const REPORTS = 'reports/mutation'
/** For loops no expiry; a promise that never settles ends with the time limit of its test. */
const TIMEOUT_MS = 12_000

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { incremental: { type: 'boolean', default: false } },
})
const names = positionals.length > 0 ? positionals : Object.keys(ROOMS)
const unknown = names.filter((name) => !(name in ROOMS))
if (unknown.length > 0) {
  process.stderr.write(
    `no such room: ${unknown.join(', ')}; there are ${Object.keys(ROOMS).join(', ')}\n`,
  )
  process.exit(2)
}

async function mutate(name: string, { mutate: files }: Room) {
  process.env.MUTATION_ROOM = name
  const results = await new Stryker({
    mutate: files.map((file) => `src/${file}`),
    testRunner: 'vitest',
    vitest: { configFile: 'test/mutation/vitest.config.ts', related: false },
    coverageAnalysis: 'perTest',
    plugins: ['@stryker-mutator/vitest-runner', join(import.meta.dirname, 'messages.js')],
    ignorers: ['messages'],
    ignorePatterns: ['bench', 'coverage', 'data', 'dist', 'reports', 'systemd'],
    // Rewrites a tsconfig through TypeScript's API, which version 7 has not.
    tsconfigFile: 'none',
    timeoutMS: TIMEOUT_MS,
    thresholds: { high: 95, low: 85, break: 85 },
    reporters: ['clear-text', 'html', 'json', 'progress-append-only'],
    clearTextReporter: { reportTests: false, allowColor: process.stdout.isTTY },
    htmlReporter: { fileName: `${REPORTS}/${name}.html` },
    jsonReporter: { fileName: `${REPORTS}/${name}.json` },
    incremental: true,
    incrementalFile: `${REPORTS}/${name}.incremental.json`,
    force: !values.incremental,
  }).runMutationTest()
  const count = (...states: string[]) =>
    results.filter(({ status }) => states.includes(status)).length
  const killed = count('Killed', 'Timeout')
  const survived = count('Survived', 'NoCoverage')
  const percent = ((100 * killed) / (killed + survived)).toFixed(1)
  return `| \`${name}\` | ${killed + survived} | ${killed} | ${survived} | ${percent} % |`
}

mkdirSync(REPORTS, { recursive: true })
const rows: string[] = []
for (const name of names) {
  const room = ROOMS[name]
  if (room !== undefined) rows.push(await mutate(name, room))
}
process.stdout.write(
  ['', '| room | mutants | killed | survived | score |', '|---|---|---|---|---|', ...rows, ''].join(
    '\n',
  ),
)
