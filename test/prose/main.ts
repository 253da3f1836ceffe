/**
 * `npm run prose [-- name …] [--json] [--worst count]`: measures how the pages, the comments and the texts
 * of the program read. Exit code 1: an enforced group misses its target, and its worst sentences are listed.
 */
import { parseArgs } from 'node:util'
import { printTable } from '../../bench/tools.ts'
import { ROOT } from '../helpers/document-part.ts'
import { isFailed, type Report, reportOn, worstOf } from './report.ts'
import { GROUPS, TARGETS } from './targets.ts'

/** Characters of a sentence in the list of the worst. */
const MAX_SHOWN = 300
const COLUMNS = [
  'words',
  'mean',
  'p90',
  'over25',
  'over40',
  'paragraphP90',
  'pronouns',
  'longCells',
  'comments',
  'indirect',
]
const USAGE = `Usage: npm run prose [-- options] [name ...]

Measures the prose of pages, comments and texts of the program against test/prose/targets.ts.
A name is a part of a group's name, such as README or texts. Without names: all groups.

Options:
  --worst <count>  list the worst sentences of every group
                   (default: 10 of each enforced group that misses its target)
  --json           print JSON
  -h, --help       print this help

Figures:
  mean, p90        words per sentence
  over25, over40   percent of sentences with more words
  paragraphP90     words per paragraph
  pronouns         who, what, those, the one, ... per 1,000 words
  longCells        percent of table cells over 25 words
  indirect         percent of comments that begin with What, Who, Whoever, Where, Until or Of

Exit codes: 0, enforced groups meet their targets; 1, a group misses its target; 2, wrong arguments.
`

function stateOf({ isEnforced, missed }: Report): string {
  if (missed.length === 0) return isEnforced ? 'met' : 'met, not enforced'
  return `${isEnforced ? 'MISSED' : 'open'}: ${missed.join(', ')}`
}

function print(reports: readonly Report[]): void {
  const columns = COLUMNS.filter((name) => reports.some(({ figures }) => name in figures))
  const cell = (value: number | undefined) =>
    value === undefined ? '' : String(Math.round(value * 10) / 10)
  printTable(
    ['group', ...columns, 'target'],
    reports.map((it) => [it.name, ...columns.map((name) => cell(it.figures[name])), stateOf(it)]),
  )
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    worst: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
})
if (values.help) {
  process.stdout.write(USAGE)
  process.exit(0)
}
const chosen = GROUPS.filter(
  ({ name }) => positionals.length === 0 || positionals.some((part) => name.includes(part)),
)
const count = Number(values.worst ?? 10)
if (chosen.length === 0 || !Number.isInteger(count) || count < 0) {
  process.stderr.write(USAGE)
  process.exit(2)
}

const reports = reportOn(ROOT, GROUPS, chosen)
const worst = reports
  .filter((it) => values.worst !== undefined || isFailed(it))
  .map((it) => ({ name: it.name, sentences: worstOf(it, count) }))
if (values.json) {
  const groups = reports.map(({ sentences: _, ...rest }) => rest)
  process.stdout.write(`${JSON.stringify({ targets: TARGETS, groups, worst }, null, 2)}\n`)
} else {
  print(reports)
  for (const { name, sentences } of worst) {
    process.stdout.write(`\n${name}, the worst sentences:\n`)
    for (const { words, text, where } of sentences) {
      process.stdout.write(
        `  ${String(words).padStart(3)} words, ${where}: ${text.slice(0, MAX_SHOWN)}\n`,
      )
    }
  }
}
process.exit(reports.some(isFailed) ? 1 : 0)
