import { parseDocument } from 'yaml'

// A separate module that is loaded on demand. The bundle contains a CommonJS library, whose names need a
// static import.

/** Maximum number of alias references: enough for reuse, too few for an expansion attack. */
const MAX_ALIASES = 100

/** Parses YAML to plain values. Throws an Error with a sentence. */
export function readYamlDocument(text: string): unknown {
  const document = parseDocument(text)
  const [error] = document.errors
  if (error) throw new Error(error.message.split('\n', 1)[0])
  return document.toJS({ maxAliasCount: MAX_ALIASES })
}
