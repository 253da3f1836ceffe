import { parseDocument } from 'yaml'

// A separate module, loaded on demand. The library is a CommonJS module in the bundle, so only a static
// import can use its names.

/** Maximum number of alias references: enough for reuse, too few for an expansion attack. */
const MAX_ALIASES = 100

/** Parses YAML to plain values. Throws an Error with a sentence. */
export function readYamlDocument(text: string): unknown {
  const document = parseDocument(text)
  const [error] = document.errors
  if (error) throw new Error(error.message.split('\n', 1)[0])
  return document.toJS({ maxAliasCount: MAX_ALIASES })
}
