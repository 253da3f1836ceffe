import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'
import { namesText } from '../local/status-text.ts'
import { type Colour, type Paint, paintFor, plainLine } from '../local/terminal-text.ts'
import type { Finding, Outcome } from './finding.ts'

const MARKS: Readonly<Record<Outcome, readonly [mark: string, colour: Colour]>> = {
  good: ['✓', 'green'],
  bad: ['✗', 'red'],
  skipped: ['-', 'dim'],
}
/** A check that passed, and has a remedy. */
const NOTE_MARK = ['!', 'yellow'] as const

interface DoctorOptions {
  readonly dataDir?: string
  readonly json?: boolean
}

/** `device-agent doctor`: each link of the chain in its order. Ends with 1 when one does not hold. */
export function doctorCommand(context: CommandContext): Command {
  return new Command('doctor')
    .description('check settings, network, service, tunnels and upstreams, and suggest fixes')
    .option(
      '--data-dir <folder>',
      'data directory of the agent; default: from the settings, or of the service',
    )
    .option('--json', 'print one JSON line per check')
    .action((options: DoctorOptions) => examine(context, options))
}

async function examine(context: CommandContext, options: DoctorOptions): Promise<void> {
  const { stdout, environment } = context
  const paint = paintFor(stdout, environment)
  const shownFindings: Finding[] = []
  const shorten = shortener()
  const tell = (findings: readonly Finding[]) => {
    for (const finding of options.json ? findings : grouped(findings)) {
      shownFindings.push(finding)
      stdout.write(
        options.json ? `${JSON.stringify(finding)}\n` : findingText(shorten(finding), paint),
      )
    }
  }
  const { examineDevice } = await import('./examination.ts')
  const { findings } = await examineDevice(context, options.dataDir)
  for await (const some of findings) tell(some)
  if (shownFindings.some(({ outcome }) => outcome === 'bad')) process.exitCode = 1
  if (!options.json) stdout.write(`\n${summary(shownFindings)}\n`)
}

/** Shorter causes are quicker to read again than to look for. */
const LONG_CAUSE = 80

/** Returns a function that shortens each finding whose cause or remedy an earlier finding had. */
export function shortener(): (finding: Finding) => Finding {
  const causes: string[] = []
  const remedies = new Set<string | null>()
  return (finding) => {
    const { outcome, detail, remedy } = finding
    const [, state = '', cause = ''] = /^(\w+: )?(.*)$/s.exec(detail) ?? []
    const lasting = cause.replaceAll(CLOCK_TIME, '')
    const isKnown = outcome === 'bad' && remedies.has(remedy)
    const isSaid =
      isKnown && lasting.length > LONG_CAUSE && causes.some((it) => it.startsWith(lasting))
    causes.push(lasting)
    remedies.add(remedy)
    if (isSaid) return { ...finding, detail: `${state}as above`, remedy: null }
    return isKnown ? { ...finding, remedy: 'As above.' } : finding
  }
}

/** Differs for each check of the same clock. */
const CLOCK_TIME = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/g

/** Joins the failed checks of one kind with the same cause: 50 tunnels of a broken link are one entry. */
export function grouped(findings: readonly Finding[]): Finding[] {
  const groups = new Map<string, Finding[]>()
  for (const [at, finding] of findings.entries()) {
    const { check, outcome, detail, remedy } = finding
    const isJoined = outcome === 'bad' && check.startsWith(TUNNEL)
    const key = isJoined ? JSON.stringify([detail, remedy]) : String(at)
    groups.set(key, [...(groups.get(key) ?? []), finding])
  }
  return [...groups.values()].flatMap((alike) => {
    const [first] = alike
    if (!first || alike.length === 1) return alike
    const names = alike.map(({ check }) => check.slice(TUNNEL.length))
    return [{ ...first, check: `${TUNNEL}${namesText(names)}` }]
  })
}

const TUNNEL = 'tunnel '

/** `✓ disk: 11204 MiB free`, followed by the remedy. */
export function findingText(finding: Finding, paint: Paint): string {
  const { check, outcome, detail, remedy } = finding
  const [mark, colour] = isNote(finding) ? NOTE_MARK : MARKS[outcome]
  const advice = remedy === null ? '' : `  → ${plainLine(remedy)}\n`
  return `${paint(colour, mark)} ${paint('bold', plainLine(check))}: ${plainLine(detail)}\n${advice}`
}

/** Counts the failed checks, and the notes with a remedy. */
export function summary(findings: readonly Finding[]): string {
  const failures = findings.filter(({ outcome }) => outcome === 'bad').length
  const notes = findings.filter(isNote).length
  if (failures + notes === 0) return 'All checks passed.'
  const noun = failures === 1 ? 'check' : 'checks'
  const failed =
    failures === 0 ? 'No check failed.' : `${failures} ${noun} failed. Start with the first.`
  if (notes === 0) return failed
  return `${failed} ${notes === 1 ? '1 note has' : `${notes} notes have`} a fix.`
}

/** Not a check that failed: the device works, and a person can improve something. */
function isNote({ outcome, remedy }: Finding): boolean {
  return outcome === 'good' && remedy !== null
}
