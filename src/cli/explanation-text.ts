import type { Outcome } from '../policy/exchange/outcome.ts'
import type { ExplainedAction, ExplainedRule, Explanation } from '../policy/explain.ts'
import type { Json } from '../policy/expression/value.ts'

/** Characters of a body that are shown. */
const MAX_BODY = 500

/** Explained requests as text. Equal neighbours are printed once. */
export function explanationsText(explanations: readonly Explanation[]): string {
  const groups: { text: string; first: number; last: number }[] = []
  for (const [index, explanation] of explanations.entries()) {
    const text = explanationText(explanation)
    const group = groups.at(-1)
    if (group?.text === text) group.last = index + 1
    else groups.push({ text, first: index + 1, last: index + 1 })
  }
  return groups
    .map(({ text, first, last }) => {
      const title = first === last ? `request ${first}` : `requests ${first} to ${last}`
      return `${title}\n${text}`
    })
    .join('\n')
}

/** Why a policy may behave differently at the gateway. */
export function explanationNotes(policy: string, explanations: readonly Explanation[]): string[] {
  const isSignIn = ({ actions, failure }: ExplainedRule) =>
    [...actions.map(({ type }) => type), failure?.action].some((it) => SIGN_INS.has(it ?? ''))
  return [
    ...(/\bsecrets\.get\(/.test(policy) ? [NO_SECRETS] : []),
    ...(explanations.some(({ rules }) => rules.some(isSignIn)) ? [NO_SIGN_IN] : []),
    ...(explanations.some(({ rules }) => rules.some(lacksKeys)) ? [NO_KEYS] : []),
  ]
}

/** Whether a rule has checked a token without the keys of its sources. */
function lacksKeys({ actions }: ExplainedRule): boolean {
  return actions.some(
    ({ type, outcome }) =>
      type === 'jwt-validation' &&
      outcome.kind === 'respond' &&
      outcome.reply.errorCode === 'ERR_NGROK_3422',
  )
}

const SIGN_INS: ReadonlySet<string> = new Set(['openid-connect', 'oauth'])
const NO_SECRETS =
  'explain does not know the values of secrets. It uses texts such as [secret site/tom]. Send that text instead of the right password.'
const NO_SIGN_IN =
  'explain has no visitor that has signed in. It asks the identity provider only if GATEWAY_OUTBOUND_ALLOW is set here.'
const NO_KEYS =
  'explain reads the keys of jwt-validation only if GATEWAY_OUTBOUND_ALLOW is set here and allows their URLs or files.'

function explanationText({ rules, forwarded, upstream, outcome, answer }: Explanation): string {
  const isOfResponse = ({ phase }: ExplainedRule) => phase === 'on_http_response'
  const lines = rules.filter((rule) => !isOfResponse(rule)).flatMap(ruleLines)
  if (forwarded) {
    lines.push(`  forwarded as ${forwarded.target}`, ...headerLines(forwarded.headers))
    lines.push(`  upstream answers ${upstream.status}`, ...headerLines(upstream.headers))
  }
  lines.push(...rules.filter(isOfResponse).flatMap(ruleLines))
  lines.push(`  answer: ${answer ? answer.status : outcomeText(outcome)}`)
  if (answer) lines.push(...headerLines(answer.headers))
  if (outcome.kind === 'respond') lines.push(...bodyLines(outcome.reply.body))
  return lines.join('\n')
}

function ruleLines({ phase, index, name, unmet, actions, failure }: ExplainedRule): string[] {
  const title = `  ${phase}[${index}]${name === undefined ? '' : ` "${name}"`}`
  const failed = failure && `fails and ends the policy: ${failure.message}`
  if (failed && failure.action === undefined) return [`${title}: ${failed}`]
  return [
    `${title}: ${unmet === undefined ? 'matches' : `does not match, false: ${unmet}`}`,
    ...actions.map(actionLine),
    ...(failed ? [`    ${failure.action}: ${failed}`] : []),
  ]
}

function actionLine({ type, outcome, result, vars }: ExplainedAction): string {
  const shown = result === undefined ? '' : ` ${JSON.stringify(withoutNoError(result))}`
  const changed = vars === undefined ? '' : `, vars are ${JSON.stringify(vars)}`
  return `    ${type}: ${outcomeText(outcome)}${shown}${changed}`
}

/** A missing error needs no line. */
function withoutNoError(result: Json): Json {
  if (typeof result !== 'object' || result === null || Array.isArray(result)) return result
  const { error, ...others } = result
  const isNone = typeof error === 'object' && error !== null && Reflect.get(error, 'code') === ''
  return isNone ? others : result
}

function outcomeText(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'continue':
      return 'continues'
    case 'respond':
      return `answers ${outcome.reply.status}`
    case 'close':
      return 'closes the connection'
    case 'forward':
      return `forwards to ${outcome.url}`
  }
}

function headerLines(fields: readonly string[]): string[] {
  const lines: string[] = []
  for (let index = 0; index < fields.length; index += 2) {
    lines.push(`    ${fields[index]}: ${fields[index + 1]}`)
  }
  return lines
}

function bodyLines(body: string): string[] {
  if (body === '') return []
  const shown = body.length > MAX_BODY ? `${body.slice(0, MAX_BODY)}…` : body
  return ['', ...shown.trimEnd().split('\n')].map((line) => (line === '' ? '' : `    ${line}`))
}
