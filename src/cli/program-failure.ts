import { CommanderError } from 'commander'
import { StartError } from '../base/app-error.ts'
import { asJournalError } from '../base/logger.ts'
import { isService } from './service-program.ts'

/**
 * 0 good, 1 failed, 2 wrong usage. Says why in words; only a mistake of ours shows its stack.
 */
export function exitCodeOf(
  error: unknown,
  stderr: NodeJS.WritableStream,
  { isJournal }: { readonly isJournal: boolean },
): number {
  // Commander has written its own words by now.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  const text = `device-agent: ${wordsOf(error)}\n`
  stderr.write(isJournal ? asJournalError(text) : text)
  return 1
}

/**
 * The failure as a line of JSON, for a command with --json. Undefined for other commands, and for services: they
 * print their line when they are ready.
 */
export function failureLine(error: unknown, args: readonly string[]): string | undefined {
  if (!args.includes('--json') || isService(args)) return undefined
  if (error instanceof CommanderError && error.exitCode === 0) return undefined
  return `${JSON.stringify({ error: failureText(error) })}\n`
}

function failureText(error: unknown): string {
  if (error instanceof StartError) return error.message
  if (!(error instanceof CommanderError)) return 'Unexpected error. See stderr.'
  const isHelp = error.code === 'commander.help'
  return isHelp ? 'The command is incomplete. See --help.' : error.message.replace(/^error: /, '')
}

/** Why a service cannot start, for people elsewhere than at its log. */
export function reasonOf(error: unknown): string {
  return error instanceof StartError
    ? error.message
    : 'unexpected error; see the log of the service'
}

function wordsOf(error: unknown): string {
  if (error instanceof StartError) return error.message
  return `unexpected: ${error instanceof Error ? error.stack : error}`
}
