// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { ExpressionProblem } from './expression-problem.ts'
import { closingQuote } from './quoted-text.ts'

/** Characters of a source that are shown to say where it cannot be read. */
const MAX_SHOWN = 40
const BRACKETS: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' }

/** What people write who think of another language, and what they mean. */
const MISTAKEN: readonly (readonly [pattern: RegExp, meant: string])[] = [
  [/^={3}/, '=='],
  [/^=(?![=~>])/, '=='],
  [/^and\b/i, '&&'],
  [/^or\b/i, '||'],
  [/^&(?!&)/, '&&'],
  [/^\|(?!\|)/, '||'],
  [/^<>/, '!='],
]

/** Says in words why a source cannot be parsed; `offset` is where the parser gave up. */
export function syntaxProblem(source: string, offset: number): ExpressionProblem {
  if (source.trim() === '') return new ExpressionProblem('it is empty', { offset: 0 })
  if (source.includes('${')) {
    const message = 'write the expression without ${ and }'
    return new ExpressionProblem(message, { offset: source.indexOf('${') })
  }
  const unpaired = unpairedIn(source)
  if (unpaired) return unpaired
  const rest = source.slice(offset)
  for (const [pattern, meant] of MISTAKEN) {
    const [written] = pattern.exec(rest) ?? []
    if (written === undefined) continue
    return new ExpressionProblem(`${written} is not an operator: did you mean ${meant}?`, {
      offset,
    })
  }
  if (/\bnot\s+$/.test(source.slice(0, offset))) {
    return new ExpressionProblem('not is not an operator: did you mean !?', { offset })
  }
  if (/^\W*$/.test(rest)) return new ExpressionProblem('the end is missing', { offset })
  const shown = rest.length > MAX_SHOWN ? `${rest.slice(0, MAX_SHOWN)}…` : rest
  return new ExpressionProblem(`unexpected \`${shown}\``, { offset })
}

/** The first quote or bracket that has no other. */
function unpairedIn(source: string): ExpressionProblem | undefined {
  const open: { readonly at: number; readonly closes: string }[] = []
  for (let at = 0; at < source.length; at += 1) {
    const char = source.charAt(at)
    const closes = BRACKETS[char]
    if (source.startsWith('//', at)) {
      const end = source.indexOf('\n', at)
      at = end === -1 ? source.length : end
    } else if (char === '"' || char === "'") {
      const end = closingQuote(source, at)
      if (end === -1) return new ExpressionProblem('a string is not closed', { offset: at })
      at = end
    } else if (closes) {
      open.push({ at, closes })
    } else if (')]}'.includes(char) && open.pop()?.closes !== char) {
      return new ExpressionProblem(`${char} has no matching bracket`, { offset: at })
    }
  }
  const last = open.pop()
  return (
    last && new ExpressionProblem(`${source.charAt(last.at)} is not closed`, { offset: last.at })
  )
}
