import { Command, InvalidArgumentError } from 'commander'
import type { CommandContext } from '../command-context.ts'
import { logText, readLogLine } from './log-text.ts'
import { paintFor } from './terminal-text.ts'

const MAX_LINES = 100_000

interface LogsOptions {
  readonly follow?: boolean
  readonly lines: number
  readonly file?: string
  readonly dataDir?: string
  readonly json?: boolean
}

/** `device-agent logs`: what the agent of this device has logged, for people to read. */
export function logsCommand(context: CommandContext): Command {
  return new Command('logs')
    .description('show what the agent has logged: out of the journal, the running agent or a file')
    .option('-f, --follow', 'go on with what is logged from now on, until it is stopped')
    .option('-n, --lines <number>', 'how many of the newest lines', readNumber, 100)
    .option('--file <path>', 'a file that the log was written to')
    .option(
      '--data-dir <folder>',
      'the data folder of the agent; unset: of this program, or of the service',
    )
    .option('--json', 'the lines as they were written')
    .action((options: LogsOptions) => show(context, options))
}

async function show(context: CommandContext, options: LogsOptions): Promise<void> {
  const { stdout, environment, stop } = context
  const { openLog } = await import('./open-log.ts')
  const { follow = false, lines, json } = options
  const paint = paintFor(stdout, environment)
  for await (const text of await openLog(context, options, { lines, follow, stop })) {
    const line = readLogLine(text)
    if (!json) stdout.write(`${logText(line, paint)}\n`)
    else stdout.write(`${JSON.stringify(typeof line === 'string' ? { msg: line } : line)}\n`)
  }
}

function readNumber(text: string): number {
  const number = Number(text)
  if (/^\d+$/.test(text) && number >= 1 && number <= MAX_LINES) return number
  throw new InvalidArgumentError(`Name a whole number from 1 to ${MAX_LINES}.`)
}
