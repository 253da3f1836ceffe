import { parseDocument } from 'yaml'

/** References to anchors that a text may have: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100

/** What YAML says. Throws Error with a sentence. */
export function readYamlDocument(text: string): unknown {
  const document = parseDocument(text)
  const [error] = document.errors
  if (error) throw new Error(error.message.split('\n', 1)[0])
  return document.toJS({ maxAliasCount: MAX_ALIASES })
}
