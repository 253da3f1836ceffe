/** What a class such as `\pL` counts: its hundreds of ranges are read once, however often it is repeated. */
const CLASS_SIZE = 90
/** Characters that have to be looked up in the other case, by where there are any: `(?i)[a-\x{ffff}]`. */
const FOLDED_PART = 100
const [FIRST_FOLD, LAST_FOLD] = [0x41, 0x1e943]

/** In steps: to read a character of the source, to compile an instruction, a class, and each copy of one. */
const SOURCE_STEPS = 3
const INSTRUCTION_STEPS = 20
const CLASS_STEPS = 6_000
const COPY_STEPS = 65
/** What no pattern that can be used takes longer than. */
const MOST_STEPS = 12_000

interface Group {
  /** Of what stands in it so far, and of the part of it that a repetition would repeat. */
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
 * About how many instructions a pattern (RE2) would have, without compiling it: repetitions such as
 * `a{1000}` are written out. Sources that are none have some size, too.
 */
export function patternSize(source: string): number {
  const { instructions, classes, folded } = partsOf(source)
  return instructions + CLASS_SIZE * classes + Math.floor(folded / FOLDED_PART)
}

/** What it takes to find that size. */
export const sizingSteps = (source: string) => SOURCE_STEPS * source.length

/** What it takes to compile a pattern, by what its source says. */
export function compileSteps(source: string): number {
  const { instructions, classes, folded } = partsOf(source)
  const each = INSTRUCTION_STEPS + (classes > 0 ? COPY_STEPS : 0)
  return Math.min(MOST_STEPS, each * instructions + CLASS_STEPS * classes + folded)
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
