import { StartError } from '../base/app-error.ts'
import type { PlacedProblem } from '../policy/check.ts'

/** More than a person corrects at once. */
const MAX_SHOWN = 20

/** One error for all mistakes in a file, each of them with its place. */
export function mistakesError(path: string, mistakes: readonly string[]): StartError {
  const shown = mistakes.slice(0, MAX_SHOWN)
  const rest = mistakes.length - shown.length
  const count = mistakes.length === 1 ? '1 mistake' : `${mistakes.length} mistakes`
  const lines = [`${count} in ${path}:`, ...shown, ...(rest > 0 ? [`and ${rest} more`] : [])]
  return new StartError(lines.join('\n'))
}

/** `policy.yaml:3:9: message (code)` */
export function problemLine(file: string, problem: PlacedProblem): string {
  const { position, severity, message, code } = problem
  const warning = severity === 'warning' ? 'warning: ' : ''
  return `${file}:${position.line}:${position.column}: ${warning}${message} (${code})`
}
