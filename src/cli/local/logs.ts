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

/** `device-agent logs`: the log of the agent on this device. */
export function logsCommand(context: CommandContext): Command {
  return new Command('logs')
    .description('show the log of the agent from the journal, the running agent or a file')
    .option('-f, --follow', 'keep printing new lines until stopped')
    .option('-n, --lines <number>', 'number of latest lines to show', readNumber, 100)
    .option('--file <path>', 'log file to read')
    .option(
      '--data-dir <folder>',
      'data directory of the agent; default: from the settings, or of the service',
    )
    .option('--json', 'print one JSON line per log line, as written')
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
  throw new InvalidArgumentError(`Use a whole number from 1 to ${MAX_LINES}.`)
}
