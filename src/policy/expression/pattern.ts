import { RE2JS } from 're2js'
import { BoundedCache } from '../../base/bounded-cache.ts'
import { Account } from './account.ts'

/** Size of a class such as `\pL`. Its hundreds of ranges are read once, whatever its number of uses. */
const CLASS_SIZE = 90
/** Characters that have to be looked up in the other case, by where there are any: `(?i)[a-\x{ffff}]`. */
const FOLDED_PART = 100
const [FIRST_FOLD, LAST_FOLD] = [0x41, 0x1e943]

/** In steps: to read a character of the source, to compile an instruction, a class, and each copy of one. */
const SOURCE_STEPS = 3
const INSTRUCTION_STEPS = 20
const CLASS_STEPS = 6_000
const COPY_STEPS = 65
/** Most steps to compile a usable pattern. */
const MAX_STEPS = 12_000

interface Group {
  /** Size so far, and size of the last part, which a repetition would repeat. */
  size: number
  last: number
}

interface Parts {
  readonly instructions: number
  readonly classes: number
  /** Characters of ranges that match in either case. */
  readonly folded: number
}

/**
 * Estimated number of instructions of a pattern (RE2), without compiling it. Repetitions such as `a{1000}`
 * are expanded. Invalid sources have a size, too.
 */
export function patternSize(source: string): number {
  const { instructions, classes, folded } = partsOf(source)
  return instructions + CLASS_SIZE * classes + Math.floor(folded / FOLDED_PART)
}

/** Steps to compute that size. */
const sizingSteps = (source: string) => SOURCE_STEPS * source.length

/** Steps to compile a pattern, estimated from its source. */
function compileSteps(source: string): number {
  const { instructions, classes, folded } = partsOf(source)
  const each = INSTRUCTION_STEPS + (classes > 0 ? COPY_STEPS : 0)
  return Math.min(MAX_STEPS, each * instructions + CLASS_STEPS * classes + folded)
}

function partsOf(source: string): Parts {
  const groups: Group[] = [{ size: 0, last: 0 }]
  let group = groups[0] as Group
  let classes = 0
  let folded = 0
  const isFolding = FOLDING.test(source)
  const add = (size: number) => {
    group.size += size
    group.last = size
  }
  for (const [token] of source.matchAll(TOKEN)) {
    if (token === '(') {
      group = { size: 0, last: 0 }
      groups.push(group)
    } else if (token === ')') {
      const { size } = groups.length > 1 ? (groups.pop() as Group) : group
      group = groups[groups.length - 1] as Group
      add(size)
    } else if (/^\{\d/.test(token)) {
      const times = Math.max(...token.slice(1, -1).split(',').map(Number))
      group.size += group.last * (times - 1)
      group.last *= times
    } else if (token.startsWith('\\Q')) {
      add(token.length)
    } else {
      // Within brackets there may be several.
      classes += token.match(/\\[pP]/g)?.length ?? 0
      if (isFolding && token.startsWith('[')) folded += rangesIn(token)
      add(1)
    }
  }
  return { instructions: groups.reduce((sum, { size }) => sum + size, 0), classes, folded }
}

/** How many characters with another case may stand in the ranges of a class in brackets. */
function rangesIn(brackets: string): number {
  let characters = 0
  for (const { groups: { from = '', to = '' } = {} } of brackets.matchAll(RANGE)) {
    const first = Math.max(codeOf(from), FIRST_FOLD)
    characters += Math.max(0, Math.min(codeOf(to), LAST_FOLD) - first + 1)
  }
  return characters
}

function codeOf(character: string): number {
  const [, digits] = /^\\x\{?([\da-f]+)/i.exec(character) ?? []
  return digits === undefined
    ? (character.replace(/^\\/, '').codePointAt(0) ?? 0)
    : Number.parseInt(digits, 16)
}

const FOLDING = /\(\?[a-zA-Z]*i/
const CHARACTER = '\\\\x\\{[\\da-fA-F]+\\}|\\\\x[\\da-fA-F]{2}|\\\\.|[^\\\\]'
const RANGE = new RegExp(`(?<from>${CHARACTER})-(?<to>${CHARACTER})`, 'gsu')

/** A quotation, an escape, a class in brackets, a repetition, or a character. */
const TOKEN = /\\Q(?:(?!\\E).)*|\\.|\[\^?\]?(?:\\.|\[:\w*:\]|[^\]\\])*\]?|\{\d+(?:,\d*)?\}|./gs

/** Characters of a pattern's source. */
const MAX_SOURCE = 1_024
/** Instructions of a compiled pattern: repetitions such as `a{1000}` are written out. */
const MAX_SIZE = 500
/** Bytes that a search keeps for speed. A text that needs more is searched slowly. */
const MAX_AUTOMATON = 131_072
/** Steps of a character in a fast search. */
const FAST_STEPS = 0.15
/** Steps of an instruction for a character in a slow search, and of a new state. */
const SLOW_STEPS = 0.4
const NEW_STATE_STEPS = 2
/** Steps of inserting a match, and each part of its replacement. */
const MATCH_STEPS = 30
const PART_STEPS = 1
/** To take a replacement of 1,024 characters apart. */
const REPLACEMENT_STEPS = 100
const REFERENCE = /\$(\d{1,2}|\$)/g

/** Why a pattern cannot be used, as the end of a sentence: `is no RE2 expression: …`. */
export class PatternError extends Error {
  override readonly name = 'PatternError'
}

function patternFault({ message }: Error): string {
  const fault = message.replace(/^error parsing regexp: /, '')
  const [, closing] = /^missing closing ([)\]])/.exec(fault) ?? []
  if (closing === ')') return 'it has a ( without )'
  return closing === ']' ? 'it has a [ without ]' : fault
}

/** What to write in place of syntax that RE2 does not have: the end of a sentence. */
function patternAdvice(source: string): string {
  if (/\(\?<?[=!]/.test(source)) return ', which has no look-around: use a second expression'
  if (source.startsWith('*')) return ": '.*' stands for any text"
  return ''
}

/** Result of a replacement. */
export interface Replacement {
  readonly text: string
  /** Matched texts, in order. */
  readonly matches: readonly string[]
}

/** A compiled RE2 expression. Its time is linear in the text for every pattern. */
export class Pattern {
  readonly #regex: RE2JS
  readonly #size: number

  /** Pays before the slow work. Throws PatternError and EvaluationError. */
  static compile(source: string, account: Account): Pattern {
    if (source.length <= MAX_SOURCE) {
      account.spend(sizingSteps(source))
      account.spend(compileSteps(source))
    }
    return new Pattern(source)
  }

  /** Throws PatternError. */
  constructor(source: string) {
    if (source.length > MAX_SOURCE)
      throw new PatternError(`is longer than ${MAX_SOURCE} characters`)
    // Compiled, a pattern of 1,000 characters can be 100,000 instructions long: too late to look.
    refuseComplex(patternSize(source))
    try {
      this.#regex = RE2JS.compile(source)
    } catch (error) {
      throw new PatternError(
        `is not a valid RE2 expression: ${patternFault(error as Error)}${patternAdvice(source)}`,
      )
    }
    this.#size = this.#regex.programSize()
    const { dfa } = this.#regex.re2()
    dfa.stateBudget = MAX_AUTOMATON
    dfa.memBudget = MAX_AUTOMATON
    refuseComplex(this.#size)
  }

  /** Most steps of a search in a text of this length, and of a replacement without the inserted text. */
  steps(length: number): number {
    return SLOW_STEPS * (length + 1) * this.#size
  }

  /**
   * Whether the pattern occurs in the text. Requires budget for the worst case, and pays for the real search.
   * Throws EvaluationError.
   */
  test(text: string, account: Account): boolean {
    const most = this.steps(text.length)
    if (most > account.left) account.spend(most)
    const { dfa } = this.#regex.re2()
    const before = dfa.stateCount
    const isFound = this.#regex.test(text)
    const isFast = dfa.stateCount >= before && dfa.memBudget > MAX_AUTOMATON / 8
    const made = isFast ? dfa.stateCount - before : 0
    account.spend(isFast ? FAST_STEPS * text.length : most)
    account.spend(NEW_STATE_STEPS * made * this.#size)
    return isFound
  }

  /**
   * Replaces every match. As in Go, an empty match right after another does not count. `$1` is the text of a
   * group, `$0` the whole match, `$$` a dollar sign. Pays for the inserted text; the caller has paid
   * `steps()`. Throws PatternError if the text would exceed `maxLength`, and EvaluationError.
   */
  replaceAll(text: string, replacement: string, maxLength: number, account: Account): Replacement {
    const matcher = this.#regex.matcher(text)
    account.spend((REPLACEMENT_STEPS * replacement.length) / 1_024)
    const parts = replacementParts(replacement, matcher.groupCount())
    const matches: string[] = []
    let result = ''
    let end = 0
    while (matcher.find()) {
      const match = matcher.group() ?? ''
      if (match === '' && matches.length > 0 && matcher.start() === end) continue
      matches.push(match)
      // A part may be empty, so that a text that stays short does not say how long it takes.
      account.spend(MATCH_STEPS + PART_STEPS * parts.length)
      result += text.slice(end, matcher.start())
      for (const part of parts) {
        result += typeof part === 'string' ? part : (matcher.group(part) ?? '')
        if (result.length > maxLength) break
      }
      end = matcher.end()
      if (result.length > maxLength)
        throw new PatternError(`produces more than ${maxLength} characters`)
    }
    return { text: matches.length === 0 ? text : result + text.slice(end), matches }
  }
}

/** Patterns by source, within a size limit. The request that needs a new pattern pays for it. */
export class PatternCache {
  #account = new Account()
  readonly #patterns = new BoundedCache((source) => Pattern.compile(source, this.#account))

  /** Throws PatternError and EvaluationError. */
  get(source: string, account: Account): Pattern {
    this.#account = account
    return this.#patterns.get(source)
  }
}

/** Texts, and numbers of groups; groups that there are not match nothing. */
function replacementParts(replacement: string, groups: number): (string | number)[] {
  const parts: (string | number)[] = []
  let end = 0
  for (const { 0: whole, 1: reference, index } of replacement.matchAll(REFERENCE)) {
    if (index > end) parts.push(replacement.slice(end, index))
    end = index + whole.length
    if (reference === '$') parts.push('$')
    else if (Number(reference) <= groups) parts.push(Number(reference))
  }
  if (end < replacement.length) parts.push(replacement.slice(end))
  return parts
}

function refuseComplex(size: number): void {
  if (size > MAX_SIZE) throw new PatternError(`is too complex, about ${size} steps long`)
}
