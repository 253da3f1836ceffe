import { type Node, textOf } from './expression-tree.ts'

/** A clause of `format()`: what it prints, or a percent sign. */
const CLAUSE = /%(?:\.\d+)?(.)?/gs
const KINDS = 'sdfebxXo'

/** Finds what is wrong with `'text'.format([…])` when both are written out. */
export function checkFormat([text, values]: readonly Node[]): string | undefined {
  const source = textOf(text)
  if (source === undefined) return undefined
  const kinds = Array.from(source.matchAll(CLAUSE), ([, kind = '']) => kind)
  const clauses = kinds.filter((kind) => kind !== '%')
  const unknown = clauses.find((kind) => kind === '' || !KINDS.includes(kind))
  if (unknown !== undefined) return `format() has no clause %${unknown}`
  if (values?.kind !== 'list' || values.items.length === clauses.length) return undefined
  return `format() has ${clauses.length} clauses for ${values.items.length} values`
}
