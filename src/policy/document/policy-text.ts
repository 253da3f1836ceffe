import { isAlias, isMap, isScalar, isSeq, type Node, type Scalar } from 'yaml'
import { child } from './json-pointer.ts'
import type { Parts } from './parts.ts'
import type { ProblemList } from './problem.ts'
import { YamlText } from './yaml-text.ts'

/** Characters of a document. */
const MAX_LENGTH = 131_072
/** The same of YAML, which takes a hundred times as long to read as JSON. */
const MAX_YAML = 65_536
/** References to anchors that YAML may resolve: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100

/** What a text says. */
interface ReadText {
  readonly value: unknown
}

/** Reads a policy, JSON or YAML; undefined when there is nothing that could be looked at. */
export function* readPolicyText(text: string, problems: ProblemList): Parts<ReadText | undefined> {
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
  if (text.length > MAX_YAML) {
    const message = `The policy is not valid JSON, and too long for YAML (at most ${MAX_YAML} characters).`
    problems.add('tooLong', '', message)
    return undefined
  }
  const yaml = yield* YamlText.read(text)
  if (yaml) return yamlValue(yaml, problems)
  problems.add('tooDeep', '', 'The policy is nested too deeply.')
  return undefined
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
    const [text = ''] = error.message.split('\n', 1)
    const message = `The policy is neither JSON nor YAML: ${text.replace(/\.$/, '')}.`
    problems.add('unparsable', '', message, { position: yaml.position(error.pos[0]) })
    return undefined
  }
  if (second !== undefined) {
    const message = 'A policy must be a single YAML document. A second document starts here.'
    problems.add('unparsable', '', message, { position: yaml.position(second) })
  }
  reviseNode(document.contents, '', yaml, problems)
  try {
    return { value: document.toJS({ maxAliasCount: MAX_ALIASES }) }
  } catch (cause) {
    problems.add('unparsable', '', `The policy cannot be read: ${(cause as Error).message}.`)
    return undefined
  }
}

/** Finds what YAML reads in silence, and not as it was meant: keys twice, and tags. */
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

/** `!hasReqHeader('a')` is a tag for YAML; it is read as the text that its author meant. */
function reviseTag(scalar: Scalar, pointer: string, yaml: YamlText, problems: ProblemList): void {
  const { tag, range } = scalar
  if (!tag?.startsWith('!') || !range) return
  const start = yaml.text.lastIndexOf(tag, range[0])
  const position = yaml.position(start)
  const message = 'A YAML string that starts with ! must be in quotes.'
  problems.add('badValue', pointer, message, { position })
  scalar.value = yaml.text.slice(start, range[1]).trim()
}
