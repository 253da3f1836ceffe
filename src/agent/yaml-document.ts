import { parseDocument } from 'yaml'

// A file of its own, which is loaded late: of a CommonJS library that the bundle has, only a static
// import gives the names.

/** References to anchors that a text may have: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100

/** Reads YAML to plain values. Throws Error with a sentence. */
export function readYamlDocument(text: string): unknown {
  const document = parseDocument(text)
  const [error] = document.errors
  if (error) throw new Error(error.message.split('\n', 1)[0])
  return document.toJS({ maxAliasCount: MAX_ALIASES })
}
