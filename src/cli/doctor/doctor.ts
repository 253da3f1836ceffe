import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'
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
  const tell = (findings: readonly Finding[]) => {
    for (const finding of findings) {
      if (finding.outcome === 'bad') failures += 1
      stdout.write(options.json ? `${JSON.stringify(finding)}\n` : findingText(finding, paint))
    }
  }
  const { examineDevice } = await import('./examination.ts')
  const { findings } = await examineDevice(context, options.dataDir)
  for await (const some of findings) tell(some)
  if (failures > 0) process.exitCode = 1
  if (!options.json) stdout.write(`\n${summary(failures)}\n`)
}

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
