import type { YAMLError } from 'yaml'

/** What to do about errors of the YAML reader, by its code. */
const ADVICE: Readonly<Record<string, string>> = {
  TAB_AS_INDENT: 'Indent with spaces, not with tabs',
  BAD_SCALAR_START: 'Put a text that begins with this sign in quotes',
  BAD_ALIAS: 'Put a text that begins with * or & in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'Put a text that has a colon and a blank in quotes, and check the indent',
  BAD_DQ_ESCAPE: 'Write the text in single quotes, or double the backslash',
  DUPLICATE_KEY: 'Remove one of them',
  BAD_INDENT: 'Indent this line like its neighbours',
  MISSING_CHAR: 'Look for a missing comma, quote, colon or bracket',
  MULTILINE_IMPLICIT_KEY: 'Look for a missing colon, or put the text in quotes',
}

export const UNQUOTED_TAG = 'A YAML string that starts with ! must be in quotes.'

/** Offset of an unquoted text that begins with `!`, if that text is the reason of an error on its line. */
export function tagBefore({ pos: [at] }: YAMLError, text: string): number | undefined {
  const start = text.lastIndexOf('\n', at - 1) + 1
  const [before] =
    /^\s*(?:(?:- +)+|(?:- +)*[\w-]+: +)?\[?\s*(?=![^\s])/.exec(text.slice(start, at + 1)) ?? []
  return before === undefined ? undefined : start + before.length
}

/**
 * Offset of an error in the text. The reader places an error at the end behind the last line, where an editor
 * shows nothing.
 */
export function errorOffset({ pos: [at] }: YAMLError, text: string): number {
  return Math.min(at, text.trimEnd().length)
}

/** One sentence about what is wrong with a text that is neither JSON nor YAML, which `fault` says. */
export function yamlSentence(
  error: YAMLError,
  text: string,
  fault = 'The policy is neither JSON nor YAML',
): string {
  const missing = missingBracket(error, text)
  if (missing !== undefined) return `${fault}: ${missing}.`
  const [said = ''] = error.message.split('\n', 1)
  const reason = said
    .replace(/\.$/, '')
    .replace(/^Plain value cannot start with/, 'a text without quotes cannot begin with')
    .replace(
      /^Implicit map keys need to be followed by map values$/,
      'a key needs a colon and a value',
    )
    .replace(
      /^Sequence item without - indicator$/,
      'a line without - is indented less than the item before it',
    )
  const advice = adviceFor(error, text)
  return `${fault}: ${reason}.${advice === undefined ? '' : ` ${advice}.`}`
}

/** The reader's own words are about indentation, which JSON does not have. */
function missingBracket({ message, pos: [at] }: YAMLError, text: string): string | undefined {
  const [, bracket] = /^Flow .* end with a ([\]}])/.exec(message) ?? []
  if (bracket === undefined || !/^\s*[{[]/.test(text) || /\{\{/.test(text)) return undefined
  const isAtEnd = text.slice(at).trim() === ''
  return isAtEnd ? `a ${bracket} is missing at the end` : `a ${bracket} is missing here`
}

function adviceFor({ code, message, pos: [at] }: YAMLError, text: string): string | undefined {
  const line = text.slice(text.lastIndexOf('\n', at) + 1, at)
  const rest = text.slice(at)
  if (/\{\{/.test(`${line}${rest.split('\n', 1)[0]}`)) {
    return 'This line is a template: render the file first, or put the text in quotes'
  }
  if (/^\s*[{[]/.test(text)) {
    const near = `${text.slice(Math.max(0, at - 2), at)}${rest.slice(0, 3)}`
    if (/\/[/*]/.test(near) || /\/\*/.test(line)) return 'JSON has no comments: remove it'
  }
  // `- 'a' in x`: the text begins with a quote, so that YAML takes the first part for all of it.
  if (code === 'UNEXPECTED_TOKEN' && /(?:^|[-:]\s+)(['"]).*\1\s*$/.test(line)) {
    return 'The line begins with a quote that ends too early: put the whole text in the other kind of quotes'
  }
  if (message.startsWith('Sequence item without -')) {
    return 'Check the indentation of this line and of the line before it'
  }
  return ADVICE[code]
}
