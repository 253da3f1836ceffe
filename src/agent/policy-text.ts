import { parseDocument } from 'yaml'

/** References to anchors that a text may have: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100

/**
 * What the text of a policy says, JSON or YAML: the form in which a list shows it, or in which people
 * write it. Throws Error with a sentence.
 */
export function readPolicyText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    const document = parseDocument(text)
    const [error] = document.errors
    if (error) throw new Error(error.message.split('\n', 1)[0])
    return document.toJS({ maxAliasCount: MAX_ALIASES })
  }
}
