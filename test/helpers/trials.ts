import { printTable } from '../../bench/tools.ts'

const { stdout, stderr } = process

/** One thing that was measured, and the bar that it has to meet. */
export interface TrialRow {
  readonly what: string
  readonly measured: string
  readonly bar: string
  readonly isMet: boolean
}

/** Something that the built program is put through as processes, which takes minutes. */
export interface Trial {
  readonly name: string
  /** One line for `--help`. */
  readonly what: string
  run(): Promise<readonly TrialRow[]>
}

export function row(what: string, measured: string, bar: string, isMet: boolean): TrialRow {
  return { what, measured, bar, isMet }
}

/**
 * Runs the trials that are named, or all, and prints a table. The exit code: 1 when a bar is not
 * met, 2 when a name is not known.
 */
export async function runTrials(
  script: string,
  trials: readonly Trial[],
  words: readonly string[],
): Promise<number> {
  if (words.includes('--help') || words.includes('-h')) {
    stdout.write(usage(script, trials))
    return 0
  }
  const unknown = words.filter((word) => !trials.some(({ name }) => name === word))
  if (unknown.length > 0) {
    stderr.write(`There is no ${unknown.join(', ')}.\n\n${usage(script, trials)}`)
    return 2
  }
  const rows: (TrialRow & { readonly name: string })[] = []
  for (const trial of trials) {
    if (words.length > 0 && !words.includes(trial.name)) continue
    stderr.write(`${trial.name}: ${trial.what}\n`)
    for (const measured of await trial.run()) rows.push({ ...measured, name: trial.name })
  }
  printTable(
    ['trial', 'who', 'measured', 'bar', ''],
    rows.map((it) => [it.name, it.what, it.measured, it.bar, it.isMet ? 'met' : 'NOT MET']),
  )
  return rows.every(({ isMet }) => isMet) ? 0 : 1
}

function usage(script: string, trials: readonly Trial[]): string {
  const longest = Math.max(...trials.map(({ name }) => name.length))
  const lines = trials.map(({ name, what }) => `  ${name.padEnd(longest)}  ${what}`)
  return `Usage: npm run ${script} [-- name …]

Runs those that are named, or all, and prints what was measured beside its bar.
Ends with 1 when a bar is not met, with 2 when a name is not known.

${lines.join('\n')}
`
}
