import { parseCidr } from '../../base/net/network.ts'
import { formatNode, quote } from '../expression/comparison.ts'
import {
  AND,
  type CallNode,
  childrenOf,
  EQUAL,
  type FoldNode,
  IN,
  type Node,
  OR,
  pathOf,
  startOf,
  textOf,
  UNEQUAL,
} from '../expression/expression-tree.ts'
import { conflictAmong, keyOf, operandsOf } from './condition-conflicts.ts'
import { isNeverTrue } from './known-values.ts'
import {
  HEADER_NAME,
  LOWER_CASE,
  listed,
  type Mismatch,
  mismatchOf,
  type Place,
  rangeForm,
  rangesInPattern,
  UPPER_CASE,
} from './value-forms.ts'
import { VARIABLES } from './variables.ts'

/** A part of an expression that has the same value for every request. */
export interface ConstantPart {
  /** Id of the part in the written expression. */
  readonly node: bigint
  /** Sentences: the part, its value, the reason, and the right form if there is one. */
  readonly message: string
  /** False for a part that may be intended, or that changes nothing. */
  readonly isRefused: boolean
  /** Whether the part may have other values at the hosted service. */
  readonly isForeign: boolean
}

/** An expression as it runs, and as it was written. */
export interface ReviewedExpression {
  readonly form: Node
  readonly written: Node
}

const TEXT_TESTS: ReadonlyMap<string, Place> = new Map([
  ['startsWith', 'start'],
  ['endsWith', 'end'],
  ['contains', 'part'],
])
const VERBS: Readonly<Record<Place, string>> = {
  equal: 'equals',
  start: 'starts with',
  end: 'ends with',
  part: 'contains',
}
const CASES: ReadonlyMap<string, string> = new Map([
  ['lower', LOWER_CASE],
  ['lowerAscii', LOWER_CASE],
  ['upper', UPPER_CASE],
  ['upperAscii', UPPER_CASE],
])
const HEADER_MAPS: ReadonlySet<string> = new Set(['req.headers', 'res.headers'])
const PATHS: ReadonlySet<string> = new Set(['req.url.path', 'req.url.raw_path'])
/** Look-ups in heads are functions with these names before their map. */
const LOOK_UP = /^@(?:at|in):(.+)$/
/** RFC 9110 5.1. */
const HEADER_TOKEN = /^[\w!#$%&'*+.^`|~-]+$/
/** A pattern whose first character is certain, and is no slash. */
const NO_SLASH = /^\^[\w-](?![?*{])[^|]*$/

/** What a macro variable stands for: constants, names of headers, or other values. */
type Local = readonly Node[] | 'header-names' | 'other'

/** Where a part stands. */
interface Around {
  /** Whether another part may be true instead. */
  readonly isAlternative: boolean
  readonly locals: ReadonlyMap<string, Local>
}

interface Comparison {
  readonly node: CallNode
  /** The side that depends on the request. */
  readonly subject: Node
  /** The constants on the other side. */
  readonly items: readonly Node[]
  readonly place: Place
  /** Whether the constants come from a macro variable. */
  readonly isOfMacro: boolean
}

interface FoundText {
  readonly item: Node
  readonly mismatch: Mismatch
}

/** Finds the parts of an expression that do not depend on the request, although they look like it. */
export function constantParts(
  expression: ReviewedExpression,
  { isCondition }: { readonly isCondition: boolean },
): readonly ConstantPart[] {
  return new Review(expression, isCondition).parts
}

/** Finds two conditions of a rule that are never true together. Returns the index of the second. */
export function conflictOfRule(
  conditions: readonly Pick<ReviewedExpression, 'form'>[],
): { readonly index: number; readonly message: string } | undefined {
  const operands = conditions.flatMap(({ form }, index) =>
    operandsOf(form, AND).map((node) => ({ node, index })),
  )
  const conflict = conflictAmong(
    operands.map(({ node }) => node),
    AND,
  )
  const [first, second] = conflict?.pair.map((at) => operands[at]?.index) ?? []
  if (!conflict || second === undefined || first === second) return undefined
  const message = `A rule needs all of its expressions, but ${conflict.message}.`
  return { index: second, message }
}

class Review {
  readonly parts: ConstantPart[] = []
  readonly #form: Node
  /** The nodes of the written expression by their ids. */
  readonly #written = new Map<bigint, Node>()
  readonly #isCondition: boolean
  /** All texts of the expression. */
  readonly #texts: ReadonlySet<string>
  /** Variables without data that were reported. */
  readonly #reported = new Set<string>()
  #isNever: boolean | undefined

  constructor({ form, written }: ReviewedExpression, isCondition: boolean) {
    this.#form = form
    this.#index(written)
    this.#isCondition = isCondition
    this.#texts = new Set(textsIn(form))
    this.#walk(form, { isAlternative: false, locals: new Map() })
    if (isCondition && form.kind === 'constant' && form.value.value === false) {
      this.#add(form, 'The rule never applies: its condition is false.', { isRefused: false })
    }
  }

  #index(node: Node): void {
    if (!this.#written.has(node.id)) this.#written.set(node.id, node)
    for (const child of childrenOf(node)) this.#index(child)
  }

  #add(node: Node, message: string, { isRefused = true, isForeign = false } = {}): void {
    this.parts.push({ node: node.id, message, isRefused, isForeign })
  }

  /** The part as it was written. */
  #show(node: Node): string {
    return formatNode(this.#written.get(node.id) ?? node) ?? '…'
  }

  #showAll(nodes: readonly Node[]): string {
    return listed(nodes.map((node) => this.#show(node)))
  }

  #walk(node: Node, around: Around): void {
    if (this.#reviewMissing(node, around)) return
    if (node.kind === 'fold') this.#walkFold(node, around)
    else if (node.kind === 'call') this.#walkCall(node, around)
    else this.#walkAll(childrenOf(node), around)
  }

  #walkAll(nodes: readonly Node[], around: Around): void {
    for (const node of nodes) this.#walk(node, around)
  }

  #walkFold({ range, variable, step }: FoldNode, around: Around): void {
    this.#walk(range, around)
    if (range.kind === 'list' && range.items.length === 0) {
      this.#add(range, 'The list is empty, so there is nothing to find in it. List the values.')
    }
    const locals = new Map(around.locals).set(variable, localOf(range, around))
    this.#walk(step, { ...around, locals })
  }

  #walkCall(node: CallNode, around: Around): void {
    const { name } = node
    if (name === AND || name === OR) {
      const operands = operandsOf(node, name)
      const conflict = conflictAmong(operands, name, (part) => this.#show(part))
      if (conflict) {
        const message = `${conflict.message.replace(/^a /, 'A ')}.`
        this.#add(operands[conflict.pair[1]] ?? node, message)
      }
      const isAlternative = around.isAlternative || name === OR
      this.#walkAll(operands, { ...around, isAlternative })
      return
    }
    this.#reviewCall(node, around)
    this.#walkAll(childrenOf(node), around)
  }

  /** True for a variable that has no data at this gateway. */
  #reviewMissing(node: Node, { locals }: Around): boolean {
    const path = node.kind === 'call' ? LOOK_UP.exec(node.name)?.[1] : pathOf(node)
    if (path === undefined || locals.has(path.split('.', 1)[0] ?? '')) return false
    const noData = VARIABLES.get(path)?.noData
    if (noData === undefined) return false
    if (!this.#reported.has(path)) {
      this.#isNever ??= isNeverTrue(this.#form)
      const isRefused = this.#isCondition && this.#isNever
      const message = `There is no data for ${path} at this gateway: ${noData}.`
      const start = startOf(this.#written.get(node.id) ?? node)
      this.#add(start, message, { isRefused, isForeign: true })
    }
    this.#reported.add(path)
    return true
  }

  #reviewCall(node: CallNode, around: Around): void {
    const { name, target } = node
    const [first, second] = node.args
    const place = TEXT_TESTS.get(name)
    if (place && target && first) {
      this.#reviewComparison(node, target, first, place, around)
    } else if ((name === EQUAL || name === UNEQUAL) && first && second) {
      const isTurned = first.kind === 'constant' && second.kind !== 'constant'
      const [subject, other] = isTurned ? [second, first] : [first, second]
      this.#reviewComparison(node, subject, other, 'equal', around)
      this.#reviewStatus(node, subject, other)
    } else if (name === IN && first && second?.kind === 'list') {
      if (second.items.length === 0) {
        const message = `${this.#show(first)} in [] is never true: the list is empty. List the values.`
        this.#add(node, message)
      }
      this.#reviewComparison(node, first, second, 'equal', around)
    } else if (name === 'matches' && target && first) {
      this.#reviewPattern(target, first)
    } else if (name === 'inCidrRange' || name === 'inCidrRanges') {
      this.#reviewRanges(second)
    } else {
      this.#reviewLookUp(node)
    }
  }

  #reviewComparison(
    node: CallNode,
    subject: Node,
    other: Node,
    place: Place,
    around: Around,
  ): void {
    const items = itemsOf(other, around)
    if (!items) return
    const isOfMacro = other.kind === 'name'
    if (subject.kind === 'constant' && !isOfMacro) this.#reviewConstants(node, subject, items)
    if (place === 'equal' || place === 'start') this.#reviewStar(subject, items)
    const name = subjectName(subject, around)
    if (name === undefined) return
    const found = items.flatMap((item) => {
      const mismatch = mismatchOf(name, textOf(item) ?? '', place)
      return mismatch ? [{ item, mismatch }] : []
    })
    if (found.length === 0) return
    const comparison = { node, subject, items, place, isOfMacro }
    const isNever = found.length === items.length
    // A macro joins its tests with an operator of its own.
    const isAlternative = !isNever || (around.isAlternative && !isOfMacro)
    if (isNever && !isOfMacro) this.#tellWhole(comparison, found, isAlternative)
    else this.#tellItems(comparison, found, isAlternative)
  }

  /** A comparison that has one result. */
  #tellWhole(
    { node, subject, items, place }: Comparison,
    found: readonly FoundText[],
    isAlternative: boolean,
  ): void {
    const shown = this.#show(subject)
    const result = node.name === UNEQUAL ? 'is always true' : 'is never true'
    const whole = comparisonText(node, shown, this.#showAll(items))
    const [mismatch] = found.map((one) => one.mismatch)
    if (!mismatch) return
    const right = found.map((one) => one.mismatch.right)
    const better = right.includes(undefined)
      ? withSign(node, mismatch.form?.(shown, textsOf(items), place))
      : comparisonText(node, shown, listed(right.map((text = '') => quote(text))))
    this.#tell(node, `${whole} ${result}`, { mismatch, better, isAlternative })
  }

  /** Constants of several that are never found: a problem for the first that is a mistake. */
  #tellItems(
    { subject, items, place, isOfMacro }: Comparison,
    found: readonly FoundText[],
    isAlternative: boolean,
  ): void {
    const first =
      found.find(({ mismatch: { right } }) => right !== undefined && !this.#texts.has(right)) ??
      found.find(({ mismatch }) => mismatch.form) ??
      found[0]
    if (!first) return
    const { item, mismatch } = first
    const shown = this.#show(subject)
    const { right, form } = mismatch
    // The form takes the place of the comparison, which has one text of a macro at a time.
    const whole = isOfMacro ? undefined : form?.(shown, textsOf(items), place)
    const better = right === undefined ? whole : quote(right)
    const more = found.length === 1 ? '' : ` (and ${found.length - 1} more)`
    const fact = `${shown} never ${VERBS[place]} ${this.#show(item)}${more}`
    this.#tell(item, fact, { mismatch, better, isAlternative })
  }

  /** A text that is never found is a mistake, unless its right form stands beside it. */
  #tell(
    node: Node,
    fact: string,
    told: {
      readonly mismatch: Mismatch
      readonly better: string | undefined
      readonly isAlternative: boolean
    },
  ): void {
    const { better, isAlternative } = told
    const { because, right, isOurs } = told.mismatch
    const isThere = right !== undefined && this.#texts.has(right)
    const advice = better === undefined ? '' : ` Write ${better}.`
    this.#add(node, `${fact}: ${because}.${advice}`, {
      isRefused: !isThere && (better !== undefined || !isAlternative),
      isForeign: isOurs,
    })
  }

  #reviewConstants(node: CallNode, subject: Node, items: readonly Node[]): void {
    const named = [subject, ...items].map(textOf).find((text) => VARIABLES.has(text ?? ''))
    const isNever = node.name === EQUAL && items[0] && keyOf(subject) !== keyOf(items[0])
    const hint = named === undefined ? '' : ` Write ${named} without quotes.`
    const whole = comparisonText(node, this.#show(subject), this.#showAll(items))
    const message = `${whole} is the same for every request: it compares constants.${hint}`
    this.#add(node, message, { isRefused: named !== undefined || isNever === true })
  }

  /** A star in a path is compared as it is. */
  #reviewStar(subject: Node, items: readonly Node[]): void {
    const item = items.find((item) => /^\/[^*]*\*$/.test(textOf(item) ?? ''))
    if (!item || !PATHS.has(pathOf(subject) ?? '')) return
    const shown = this.#show(subject)
    const start = quote((textOf(item) ?? '').slice(0, -1))
    const message = `${this.#show(item)} stands for a path with a star, not for any path. Write ${shown}.startsWith(${start}).`
    this.#add(item, message, { isRefused: false })
  }

  #reviewStatus(node: CallNode, subject: Node, other: Node): void {
    if (pathOf(subject) !== 'res.status_code' || other.kind !== 'constant') return
    if (other.value.case !== 'int64Value') return
    if (other.value.value >= 100n && other.value.value <= 999n) return
    const whole = comparisonText(node, this.#show(subject), this.#show(other))
    const result = node.name === EQUAL ? 'never' : 'always'
    this.#add(node, `${whole} is ${result} true: a status has three digits.`)
  }

  #reviewPattern(target: Node, pattern: Node): void {
    const source = textOf(pattern)
    const path = pathOf(target) ?? ''
    const ranges = source === undefined ? undefined : rangesInPattern(path, source)
    if (ranges) {
      const shown = this.#show(target)
      const form = rangeForm(shown, ranges)
      const reason = 'the value is one address, and a range is no pattern'
      this.#add(pattern, `${shown} never matches ${this.#show(pattern)}: ${reason}. Write ${form}.`)
      return
    }
    if (source === undefined || !PATHS.has(path) || !NO_SLASH.test(source)) return
    const better = `${path}.matches(${quote(`^/${source.slice(1)}`)})`
    const fact = `${this.#show(target)} never matches ${quote(source)}`
    this.#add(pattern, `${fact}: a path begins with a slash. Write ${better}.`)
  }

  #reviewRanges(ranges: Node | undefined): void {
    for (const item of ranges?.kind === 'list' ? ranges.items : ranges ? [ranges] : []) {
      const text = textOf(item)
      if (text === undefined || parseCidr(text)) continue
      const message = `No address is in ${quote(text)}, because it is not a range of addresses. Write a range such as 10.0.0.0/8.`
      this.#add(item, message)
    }
  }

  #reviewLookUp({ name, args: [key] }: CallNode): void {
    const map = LOOK_UP.exec(name)?.[1] ?? ''
    const text = textOf(key)
    if (!key || text === undefined || !HEADER_MAPS.has(map) || HEADER_TOKEN.test(text)) return
    const message = `No header has the name ${quote(text)}. Write the name without colon and blanks.`
    this.#add(key, message)
  }
}

function localOf(range: Node, { locals }: Around): Local {
  if (range.kind === 'list' && range.items.every((item) => textOf(item) !== undefined)) {
    return range.items
  }
  const path = pathOf(range) ?? ''
  return HEADER_MAPS.has(path) && !locals.has(path.split('.', 1)[0] ?? '')
    ? 'header-names'
    : 'other'
}

/** The constant texts that a node stands for; undefined if it has other values. */
function itemsOf(node: Node, { locals }: Around): readonly Node[] | undefined {
  if (node.kind === 'name') {
    const local = locals.get(node.name)
    return typeof local === 'object' ? local : undefined
  }
  if (node.kind === 'list') {
    return node.items.every((item) => textOf(item) !== undefined) ? node.items : undefined
  }
  return textOf(node) === undefined ? undefined : [node]
}

/** The name in `value-forms.ts` of a value. */
function subjectName(node: Node, { locals }: Around): string | undefined {
  if (node.kind === 'call') return node.target && CASES.get(node.name)
  const path = pathOf(node)
  const local = locals.get(path?.split('.', 1)[0] ?? '')
  if (local === undefined) return path
  return local === 'header-names' && node.kind === 'name' ? HEADER_NAME : undefined
}

/** The comparison with other constants. */
function comparisonText(node: CallNode, subject: string, constants: string): string {
  if (node.name === IN) return `${subject} in [${constants}]`
  if (node.target) return `${subject}.${node.name}(${constants})`
  return `${subject} ${node.name === UNEQUAL ? '!=' : '=='} ${constants}`
}

const textsOf = (nodes: readonly Node[]) => nodes.map((node) => textOf(node) ?? '')

/** The condition in place of a comparison, or its opposite in place of `!=`. */
function withSign({ name }: CallNode, condition: string | undefined): string | undefined {
  if (condition === undefined || name !== UNEQUAL) return condition
  return /^[\w.]+\(/.test(condition) ? `!${condition}` : `!(${condition})`
}

function* textsIn(node: Node): Iterable<string> {
  const text = textOf(node)
  if (text !== undefined) yield text
  for (const child of childrenOf(node)) yield* textsIn(child)
}
