import {
  type Alias,
  Composer,
  type Document,
  isAlias,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  type Scalar,
  visit,
} from 'yaml'
import {
  child,
  type PolicyProblem,
  ProblemList,
  placedMessage,
  type SourcePosition,
  stepsOf,
} from './problem.ts'
import { errorOffset, tagBefore, UNQUOTED_TAG, yamlSentence } from './yaml-errors.ts'

/** Work in parts: after each it says about how many characters it was, so that others may go on. */
export type Parts<T> = Generator<number, T, undefined>

/** Does all parts at once. */
export function atOnce<T>(parts: Parts<T>): T {
  let part = parts.next()
  while (!part.done) part = parts.next()
  return part.value
}

/** Collections inside each other: the library puts them together by recursion. */
const MAX_NESTING = 100

/** A text with too many collections inside each other. */
interface TooDeep {
  readonly tooDeepAt: SourcePosition
}

/** A YAML text (JSON is YAML, too) whose parts know their positions. */
class YamlText {
  readonly text: string
  readonly document: Document.Parsed
  /** Start of a second document, in characters; undefined for a single document. */
  readonly second: number | undefined
  readonly #lines: LineCounter

  private constructor(text: string, documents: readonly Document.Parsed[], lines: LineCounter) {
    const [document, second] = documents
    this.text = text
    this.document = document as Document.Parsed
    this.second = second?.range[0]
    this.#lines = lines
  }

  /** Returns the place of the problem for a text nested so deep that to compose it could end the process. */
  static *read(text: string): Parts<YamlText | TooDeep> {
    const lines = new LineCounter()
    lines.addNewLine(0)
    const parser = new Parser(lines.addNewLine)
    const tokens = []
    for (const lexeme of new Lexer().lex(text)) {
      for (const token of parser.next(lexeme)) tokens.push(token)
      if (parser.stack.length > MAX_NESTING) {
        const { line, col } = lines.linePos(parser.offset)
        return { tooDeepAt: { line: Math.max(1, line), column: Math.max(1, col) } }
      }
      yield lexeme.length
    }
    for (const token of parser.end()) tokens.push(token)
    // Excerpts for each error are slow. Repeated keys are reported elsewhere, with their pointers.
    const composer = new Composer({ uniqueKeys: false, prettyErrors: false, logLevel: 'silent' })
    const documents = Array.from(composer.compose(tokens, true, text.length))
    return new YamlText(text, documents, lines)
  }

  /** The place of a character, counted from 0. */
  position(offset: number): SourcePosition {
    const { line, col } = this.#lines.linePos(offset)
    return { line: Math.max(1, line), column: Math.max(1, col) }
  }
}

const TOP: SourcePosition = { line: 1, column: 1 }

/** Finds where the value of a JSON pointer stands in JSON or YAML text. */
export class SourcePositions {
  readonly #text: string
  #yaml: YamlText | TooDeep | undefined

  constructor(text: string) {
    this.#text = text
  }

  /**
   * Position of the character at `offset` of a value. Without an offset, or if the source text differs from
   * its value: the position of the value, of its key, or of its container.
   */
  find(pointer: string, offset?: number): SourcePosition {
    // The document may be unreadable.
    if (pointer === '') return TOP
    this.#yaml ??= atOnce(YamlText.read(this.#text))
    if ('tooDeepAt' in this.#yaml) return TOP
    let node: unknown = this.#yaml.document.contents
    let place = startOf(node) ?? 0
    for (const key of stepsOf(pointer)) {
      const next = childOf(node, key)
      if (!next) break
      node = next.value
      place = next.offset ?? place
    }
    if (offset !== undefined) place = this.#within(node, offset) ?? place
    return this.#yaml.position(place)
  }

  /** Texts in quotes or without stand on one line as they are, unless something is escaped. */
  #within(node: unknown, offset: number): number | undefined {
    if (!isScalar(node) || typeof node.value !== 'string' || !node.range) return undefined
    if (offset > node.value.length) return undefined
    const start = node.range[0] + (node.type?.startsWith('QUOTE') ? 1 : 0)
    return this.#text.startsWith(node.value, start) ? start + offset : undefined
  }
}

interface Child {
  readonly value: unknown
  readonly offset: number | undefined
}

function childOf(node: unknown, key: string): Child | undefined {
  if (isSeq(node)) {
    const value = node.items[Number(key)]
    return value === undefined ? undefined : { value, offset: startOf(value) }
  }
  if (!isMap(node)) return undefined
  // The last of equal keys counts.
  const pair = node.items.findLast((item) => isScalar(item.key) && String(item.key.value) === key)
  return pair && { value: pair.value, offset: startOf(pair.key) }
}

function startOf(node: unknown): number | undefined {
  return (node as Node | null | undefined)?.range?.[0]
}

/** Characters of a document. */
const MAX_LENGTH = 131_072
/** The same of YAML, which takes a hundred times as long to read as JSON. */
const MAX_YAML = 65_536
/** References to anchors that YAML may resolve: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100
/** Values of a document: more than a text of that length has without aliases. */
const MAX_VALUES = 32_768

/** A parsed text. */
interface ReadText {
  readonly value: unknown
}

/** What was found in a text. Without a value there is nothing that could be looked at. */
export interface PolicyReading {
  readonly read: ReadText | undefined
  readonly problems: readonly PolicyProblem[]
}

/** Reads a JSON text. Returns `yaml` for a text that is not JSON and may be YAML. */
function readJson(text: string, problems: ProblemList): ReadText | 'yaml' | undefined {
  if (text.length > MAX_LENGTH) {
    problems.add('tooLong', '', `The policy exceeds ${MAX_LENGTH} characters.`)
    return undefined
  }
  try {
    const value: unknown = JSON.parse(text)
    // JSON.parse keeps the last of two equal keys in silence; the YAML reader names them.
    if (countKeysIn(text) === countKeys(value)) return { value }
  } catch {
    // Not JSON.
  }
  if (text.length <= MAX_YAML) return 'yaml'
  const message = `The policy is not valid JSON, and too long for YAML (at most ${MAX_YAML} characters).`
  problems.add('tooLong', '', message)
  return undefined
}

/** Reads a policy, JSON or YAML; undefined when there is nothing that could be looked at. */
export function* readPolicyText(text: string, problems: ProblemList): Parts<ReadText | undefined> {
  const json = readJson(text, problems)
  if (json !== 'yaml') return json
  const yaml = yield* YamlText.read(text)
  if (!('tooDeepAt' in yaml)) return yamlValue(yaml, problems)
  const message = `The policy is nested more than ${MAX_NESTING} levels deep.`
  problems.add('tooDeep', '', message, { position: yaml.tooDeepAt })
  return undefined
}

/** Reads a text that does not take long: JSON, or a text that is too long. Undefined for YAML. */
export function quickReading(text: string): PolicyReading | undefined {
  const problems = new ProblemList()
  const read = readJson(text, problems)
  return read === 'yaml' ? undefined : { read, problems: problems.all }
}

/** Reads a JSON or YAML text at once. */
export function policyReading(text: string): PolicyReading {
  const problems = new ProblemList()
  const read = atOnce(readPolicyText(text, problems))
  problems.about(read?.value)
  return { read, problems: problems.all }
}

/** A text as JSON, or one sentence about its first problem, with its place. */
export type PolicyJson = { readonly json: string } | { readonly problem: string }

/** Reads a JSON or YAML text at once. */
export function policyJson(text: string): PolicyJson {
  const { read, problems } = policyReading(text)
  const [first] = problems
  if (read && !first) return jsonOf(read)
  const { message = 'The policy cannot be read.', position, pointer = '' } = first ?? {}
  const place = position ?? (pointer === '' ? undefined : new SourcePositions(text).find(pointer))
  return { problem: placedMessage(message, place) }
}

/** Aliases repeat texts, so a short text can be long as JSON. */
function jsonOf({ value }: ReadText): PolicyJson {
  const json = JSON.stringify(value)
  if (json.length <= MAX_LENGTH) return { json }
  const problem = `The policy exceeds ${MAX_LENGTH} characters as JSON, with the repeated values of its aliases.`
  return { problem }
}

function countKeysIn(json: string): number {
  let keys = 0
  for (const [, colon] of json.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)) if (colon) keys += 1
  return keys
}

function countKeys(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  const items: unknown[] = Object.values(value)
  return items.reduce<number>(
    (sum, item) => sum + countKeys(item),
    Array.isArray(value) ? 0 : items.length,
  )
}

function yamlValue(yaml: YamlText, problems: ProblemList): ReadText | undefined {
  const { document, second } = yaml
  const [error] = document.errors
  if (error) {
    const tagAt = tagBefore(error, yaml.text)
    const message = tagAt === undefined ? yamlSentence(error, yaml.text) : UNQUOTED_TAG
    problems.add('unparsable', '', message, {
      position: yaml.position(tagAt ?? errorOffset(error, yaml.text)),
    })
    return undefined
  }
  // Resources of Kubernetes often stand in one file. They are refused for another reason.
  const isResource = isMap(document.contents) && document.contents.has('apiVersion')
  if (second !== undefined && !isResource) {
    const message = 'A policy must be a single YAML document. A second document starts here.'
    problems.add('unparsable', '', message, { position: yaml.position(second) })
  }
  reviseNode(document.contents, '', yaml, problems)
  try {
    const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES })
    if (countValues(value, MAX_VALUES) <= MAX_VALUES) return { value }
    const message = `The policy has more than ${MAX_VALUES} values, with the repeated values of its aliases.`
    problems.add('tooManyEntries', '', message)
    return undefined
  } catch (cause) {
    const loop = aliasInItself(document)
    if (loop) {
      const message = `The policy cannot be read: an alias contains itself (*${loop.source}).`
      const position = yaml.position(loop.range?.[0] ?? 0)
      problems.add('unparsable', '', message, { position })
      return undefined
    }
    const alias = unresolvedAlias(document)
    const position = alias && yaml.position(alias.range?.[0] ?? 0)
    const message = alias
      ? `*${alias.source} is an alias for YAML, and no anchor &${alias.source} comes before it. Put a text that begins with * in quotes.`
      : `The policy cannot be read: ${(cause as Error).message}.`
    problems.add('unparsable', '', message, { position })
    return undefined
  }
}

/** Counts values until there are more than `most`. Aliases repeat the values of their anchor. */
function countValues(value: unknown, most: number): number {
  if (typeof value !== 'object' || value === null) return 1
  let count = 1
  for (const item of Object.values(value)) {
    if (count > most) return count
    count += countValues(item, most - count)
  }
  return count
}

function unresolvedAlias(document: Document.Parsed): Alias | undefined {
  let found: Alias | undefined
  visit(document, {
    Alias: (_, alias) => {
      if (alias.resolve(document)) return undefined
      found = alias
      return visit.BREAK
    },
  })
  return found
}

/** Finds an alias within the value that it stands for. */
function aliasInItself(document: Document.Parsed): Alias | undefined {
  let found: Alias | undefined
  visit(document, {
    Alias: (_, alias, path) => {
      const isInside = path.some((around) => isCollection(around) && around.anchor === alias.source)
      if (!isInside || !path.some((around) => around === alias.resolve(document))) return undefined
      found = alias
      return visit.BREAK
    },
  })
  return found
}

/** Finds YAML that is valid, but probably not intended: repeated keys and tags. */
function reviseNode(node: unknown, pointer: string, yaml: YamlText, problems: ProblemList): void {
  if (isAlias(node)) return
  if (isScalar(node)) reviseTag(node, pointer, yaml, problems)
  if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) {
      reviseNode(item, child(pointer, index), yaml, problems)
    }
  }
  if (!isMap(node)) return
  const seen = new Set<string>()
  for (const { key, value } of node.items) {
    const name = isScalar(key) ? String(key.value) : String(key)
    const at = child(pointer, name)
    if (seen.has(name)) {
      const position = yaml.position((key as Node).range?.[0] ?? 0)
      problems.add('unparsable', at, `${name} is defined twice.`, { position })
    }
    seen.add(name)
    reviseNode(value, at, yaml, problems)
  }
}

/** Tags that begin with `!!`, and those that YAML defines. */
const OF_YAML = /^tag:yaml\.org,2002:/
const YAML_TYPES: ReadonlySet<string> = new Set([
  ...['!!str', '!!int', '!!float', '!!bool', '!!null', '!!map', '!!seq', '!!binary'],
  ...['!!merge', '!!timestamp', '!!set', '!!omap', '!!pairs'],
])

/** `!hasReqHeader('a')` is a tag for YAML; it is read as the text that its author meant. */
function reviseTag(scalar: Scalar, pointer: string, yaml: YamlText, problems: ProblemList): void {
  const { range } = scalar
  const tag = scalar.tag?.replace(OF_YAML, '!!')
  if (!tag?.startsWith('!') || !range || YAML_TYPES.has(tag)) return
  const start = yaml.text.lastIndexOf(tag, range[0])
  const position = yaml.position(start)
  problems.add('badValue', pointer, UNQUOTED_TAG, { position })
  scalar.value = yaml.text.slice(start, range[1]).trim()
}
