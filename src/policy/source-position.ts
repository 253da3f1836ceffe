import { isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'

/** A place in a text, both counted from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

/** Finds where the value of a JSON pointer stands in JSON or YAML text. */
export class SourcePositions {
  readonly #lines = new LineCounter()
  readonly #root: unknown

  constructor(text: string) {
    // JSON is YAML, and this parser remembers where each value came from.
    this.#root = parseDocument(text, { lineCounter: this.#lines, uniqueKeys: false }).contents
  }

  /** The place of the value, of its key when there is one, or of the nearest thing around it. */
  find(pointer: string): SourcePosition {
    let node: unknown = this.#root
    let offset = startOf(node) ?? 0
    for (const step of pointer.split('/').slice(1)) {
      const key = step.replaceAll('~1', '/').replaceAll('~0', '~')
      const next = childOf(node, key)
      if (!next) break
      node = next.value
      offset = next.offset ?? offset
    }
    const { line, col } = this.#lines.linePos(offset)
    return { line: Math.max(1, line), column: Math.max(1, col) }
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
  const pair = node.items.find((item) => isScalar(item.key) && String(item.key.value) === key)
  return pair && { value: pair.value, offset: startOf(pair.key) }
}

function startOf(node: unknown): number | undefined {
  return (node as Node | null | undefined)?.range?.[0]
}
