import type { ExplainedAction, ExplainedRule, Explanation } from '../policy/explain.ts'
import type { Outcome } from '../policy/outcome.ts'

/** One explained request as people read it. */
export function explanationText(explanation: Explanation, number: number): string {
  const { rules, failure, forwarded, outcome, answer } = explanation
  const lines = [`request ${number}`, ...rules.flatMap(ruleLines)]
  if (failure !== undefined) lines.push(`  failed closed: ${failure}`)
  if (forwarded) lines.push(`  forwarded as ${forwarded.target}`, ...headerLines(forwarded.headers))
  lines.push(`  ${ending(outcome, forwarded !== undefined)}`)
  if (answer) lines.push(...headerLines(answer.headers))
  return lines.join('\n')
}

function ruleLines({ phase, index, name, matches, actions }: ExplainedRule): string[] {
  const title = `  ${phase}[${index}]${name === undefined ? '' : ` "${name}"`}`
  return [`${title}: ${matches ? 'matches' : 'does not match'}`, ...actions.map(actionLine)]
}

function actionLine({ type, outcome, result }: ExplainedAction): string {
  const shown = result === undefined ? '' : ` ${JSON.stringify(result)}`
  return `    ${type}: ${outcomeText(outcome)}${shown}`
}

function outcomeText(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'continue':
      return 'goes on'
    case 'respond':
      return `answers ${outcome.reply.status}`
    case 'close':
      return 'closes the connection'
    case 'forward':
      return `forwards to ${outcome.url}`
  }
}

function ending(outcome: Outcome, isForwarded: boolean): string {
  if (outcome.kind === 'continue' && isForwarded) return 'answer: what the upstream answers, with'
  if (outcome.kind === 'respond') return `answer: ${outcome.reply.status}`
  return `answer: ${outcomeText(outcome)}`
}

function headerLines(fields: readonly string[]): string[] {
  const lines: string[] = []
  for (let index = 0; index < fields.length; index += 2) {
    lines.push(`    ${fields[index]}: ${fields[index + 1]}`)
  }
  return lines
}
