/**
 * Whether a JSON value is nested deeper than `limit`. Checks one level at a time, because recursion, as in
 * `JSON.stringify`, could overflow the stack.
 */
export function isDeeper(value: unknown, limit: number): boolean {
  let level = [value]
  for (let depth = 0; depth <= limit; depth += 1) {
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? Object.values(item) : [],
    )
    if (level.length === 0) return false
  }
  return true
}

/** Counted from 1, as in editors. */
interface TextPosition {
  readonly line: number
  readonly column: number
}

/** One token of RFC 8259 after white space: punctuation, string, or number/literal. */
const TOKEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 8259 forbids exactly these in a string.
  /[ \t\r\n]*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null))/y

type Expected = 'value' | 'value or end' | 'key' | 'key or end' | 'colon' | 'comma or end' | 'end'

/**
 * Returns the position of the first JSON syntax error, undefined for valid JSON. `JSON.parse` gives a
 * position only for some errors.
 */
export function jsonErrorPosition(text: string): TextPosition | undefined {
  const open: string[] = []
  let expected: Expected = 'value'
  TOKEN.lastIndex = 0
  for (let at = 0; ; at = TOKEN.lastIndex) {
    const token = TOKEN.exec(text)
    if (!token) {
      const rest = at + (/^[ \t\r\n]*/.exec(text.slice(at))?.[0].length ?? 0)
      return rest === text.length && expected === 'end' ? undefined : positionOf(text, rest)
    }
    const next = follow(expected, token[1] ?? (token[2] ? 'string' : 'scalar'), open)
    if (!next) return positionOf(text, TOKEN.lastIndex - token[0].trimStart().length)
    expected = next
  }
}

/** Returns the tokens expected after `token`, undefined if it is not allowed here. Updates `open`. */
function follow(expected: Expected, token: string, open: string[]): Expected | undefined {
  const wantsValue = expected === 'value' || expected === 'value or end'
  const afterValue = () => (open.length === 0 ? 'end' : 'comma or end')
  switch (token) {
    case '{':
    case '[':
      if (!wantsValue) return undefined
      open.push(token)
      return token === '{' ? 'key or end' : 'value or end'
    case '}':
    case ']': {
      const mayEnd =
        expected === 'comma or end' || expected === (token === '}' ? 'key or end' : 'value or end')
      return mayEnd && open.pop() === (token === '}' ? '{' : '[') ? afterValue() : undefined
    }
    case ',':
      if (expected !== 'comma or end') return undefined
      return open.at(-1) === '{' ? 'key' : 'value'
    case ':':
      return expected === 'colon' ? 'value' : undefined
    default:
      if (token === 'string' && expected.startsWith('key')) return 'colon'
      return wantsValue ? afterValue() : undefined
  }
}

function positionOf(text: string, at: number): TextPosition {
  const before = text.slice(0, at).split('\n')
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 }
}
