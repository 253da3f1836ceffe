import process from 'node:process'
import { Writable } from 'node:stream'
import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'

type Asker = Pick<CommandContext, 'stderr' | 'stop'>

/** Whether a person can answer on standard input. */
export const canAsk = () => process.stdin.isTTY === true

/** Asks for a text that the terminal does not show. Throws a StartError with `nothing` if the input ends. */
export function askHidden(asker: Asker, question: string, nothing: string): Promise<string> {
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() })
  return askLine(asker, question, nothing, silent)
}

/** Asks for a text that the terminal shows. Throws a StartError with `nothing` if the input ends. */
export function askText(asker: Asker, question: string, nothing: string): Promise<string> {
  return askLine(asker, question, nothing, process.stderr)
}

/** Asks a question. Only y and yes are a yes. */
export async function askYes(asker: Asker, question: string): Promise<boolean> {
  const answer = await askLine(asker, `${question} [y/N] `, 'Cancelled.', process.stderr)
  return /^y(?:es)?$/i.test(answer.trim())
}

async function askLine(
  { stderr, stop }: Asker,
  question: string,
  nothing: string,
  output: NodeJS.WritableStream,
): Promise<string> {
  // Not loaded at the start: an agent never asks.
  const { createInterface } = await import('node:readline')
  const lines = createInterface({ input: process.stdin, output, terminal: true })
  // Only now: the terminal echoes what is typed before this.
  stderr.write(question)
  return new Promise((resolve, reject) => {
    const end = () => lines.close()
    stop.addEventListener('abort', end, { once: true })
    lines.once('line', (line) => {
      resolve(line)
      lines.close()
    })
    lines.once('SIGINT', end)
    lines.once('close', () => {
      stop.removeEventListener('abort', end)
      stderr.write('\n')
      reject(new StartError(nothing))
    })
  })
}
