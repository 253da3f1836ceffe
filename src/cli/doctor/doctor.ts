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
  let failures = 0
  const told = new Set<string | null>()
  const tell = (findings: readonly Finding[]) => {
    for (const finding of options.json ? findings : grouped(findings)) {
      const { outcome, remedy } = finding
      if (outcome === 'bad') failures += 1
      const isRepeated = outcome === 'bad' && told.has(remedy)
      const shown = isRepeated ? { ...finding, remedy: 'As above.' } : finding
      told.add(remedy)
      stdout.write(options.json ? `${JSON.stringify(finding)}\n` : findingText(shown, paint))
    }
  }
  const { examineDevice } = await import('./examination.ts')
  const { findings } = await examineDevice(context, options.dataDir)
  for await (const some of findings) tell(some)
  if (failures > 0) process.exitCode = 1
  if (!options.json) stdout.write(`\n${summary(failures)}\n`)
}

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
export function findingText({ check, outcome, detail, remedy }: Finding, paint: Paint): string {
  const [mark, colour] = MARKS[outcome]
  const advice = remedy === null ? '' : `  → ${plainLine(remedy)}\n`
  return `${paint(colour, mark)} ${paint('bold', plainLine(check))}: ${plainLine(detail)}\n${advice}`
}

export function summary(failures: number): string {
  if (failures === 0) return 'All checks passed.'
  const noun = failures === 1 ? 'check' : 'checks'
  return `${failures} ${noun} failed. Start with the first.`
}
