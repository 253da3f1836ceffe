import type { Node } from './expression-tree.ts'

/** Asks whether a variable with a dotted name has a value: the function that rewrites may call. */
export const IS_KNOWN = '@is_known'

/** What expressions mean beyond the language, for those who give them variables and functions. */
export interface Meaning {
  /** Names that read like functions and are rewritten. */
  readonly macros: readonly string[]
  /** Puts the tree in terms of the language and the functions; throws Error with a sentence. */
  readonly rewrite: (tree: Node, isVariable: (path: string) => boolean) => Node
}
