import { isMap, isScalar, isSeq, type Node } from 'yaml'
import { stepsOf } from './json-pointer.ts'
import { atOnce } from './parts.ts'
import { type SourcePosition, YamlText } from './yaml-text.ts'

const TOP: SourcePosition = { line: 1, column: 1 }

/** Finds where the value of a JSON pointer stands in JSON or YAML text. */
export class SourcePositions {
  readonly #text: string
  #yaml: YamlText | undefined

  constructor(text: string) {
    this.#text = text
  }

  /**
   * The place of the character at `offset` of a text. Without one, or where the text is not written
   * as it reads: the place of the value, of its key when there is one, or of what is around it.
   */
  find(pointer: string, offset?: number): SourcePosition {
    // What is wrong with all of it may be that it cannot be read.
    if (pointer === '') return TOP
    this.#yaml ??= atOnce(YamlText.read(this.#text))
    if (!this.#yaml) return TOP
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
  // Of equal keys the last one counts.
  const pair = node.items.findLast((item) => isScalar(item.key) && String(item.key.value) === key)
  return pair && { value: pair.value, offset: startOf(pair.key) }
}

function startOf(node: unknown): number | undefined {
  return (node as Node | null | undefined)?.range?.[0]
}
