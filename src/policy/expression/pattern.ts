import { RE2JS } from 're2js'
import { BoundedCache } from '../../base/bounded-cache.ts'
import { Account } from './cost/account.ts'
import { compileSteps, patternSize, sizingSteps } from './pattern-size.ts'

/** Characters of a pattern's source. */
const MAX_SOURCE = 1_024
/** Instructions of a compiled pattern: repetitions such as `a{1000}` are written out. */
const MAX_SIZE = 500
/** Bytes of what a search keeps to be fast; a text that needs more is searched slowly. */
const MAX_AUTOMATON = 131_072
/** What a character of a text takes where the search is fast. */
const FAST_STEPS = 0.15
/** What an instruction takes for a character where it is slow, or when it is met for the first time. */
const SLOW_STEPS = 0.4
const NEW_STATE_STEPS = 2
/** What it takes to put in a match, and each part of what stands for it. */
const MATCH_STEPS = 30
const PART_STEPS = 1
/** To take a replacement of 1,024 characters apart. */
const REPLACEMENT_STEPS = 100
const REFERENCE = /\$(\d{1,2}|\$)/g

/** Why a pattern cannot be used, as the end of a sentence: `is no RE2 expression: …`. */
export class PatternError extends Error {
  override readonly name = 'PatternError'
}

/** What a replacement did. */
export interface Replacement {
  readonly text: string
  /** What was matched, in order. */
  readonly matches: readonly string[]
}

/** A compiled RE2 expression: linear in the text, whatever the pattern. */
export class Pattern {
  readonly #regex: RE2JS
  readonly #size: number

  /** Pays before it does what takes long. Throws PatternError and EvaluationError. */
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
      throw new PatternError(`is not a valid RE2 expression: ${(error as Error).message}`)
    }
    this.#size = this.#regex.programSize()
    const { dfa } = this.#regex.re2()
    dfa.stateBudget = MAX_AUTOMATON
    dfa.memBudget = MAX_AUTOMATON
    refuseComplex(this.#size)
  }

  /** The most steps that a search in a text of this length takes, and those of a replacement. */
  steps(length: number): number {
    return SLOW_STEPS * (length + 1) * this.#size
  }

  /**
   * True when the pattern occurs anywhere in the text. Pays for what the search took, where there is
   * enough for what it could take. Throws EvaluationError.
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
   * Replaces every match; as in Go an empty one right behind another does not count. `$1` stands for
   * what a group matched and `$0` for all of it, `$$` for a dollar sign. Pays for what is put in; who
   * calls has paid `steps()`. Throws PatternError when the text would grow beyond `maxLength`, and
   * EvaluationError.
   */
  replaceAll(text: string, replacement: string, maxLength: number, account: Account): Replacement {
    const matcher = this.#regex.matcher(text)
    account.spend((REPLACEMENT_STEPS * replacement.length) / 1_024)
    const parts = partsOf(replacement, matcher.groupCount())
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

/** Patterns by their source, for as long as there is room: whoever needs a new one pays for it. */
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
function partsOf(replacement: string, groups: number): (string | number)[] {
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
