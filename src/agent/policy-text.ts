/** References to anchors that a text may have: enough for reuse, too few for a bomb. */
const MAX_ALIASES = 100

/**
 * What the text of a policy says, JSON or YAML: the form in which a list shows it, or in which people
 * write it. Rejects with an Error that is a sentence.
 */
export async function readPolicyText(text: string): Promise<unknown> {
  try {
    return JSON.parse(text)
  } catch {
    // Loaded late: most policies come as JSON, and the library is a tenth of what an agent loads.
    const { parseDocument } = await import('yaml')
    const document = parseDocument(text)
    const [error] = document.errors
    if (error) throw new Error(error.message.split('\n', 1)[0])
    return document.toJS({ maxAliasCount: MAX_ALIASES })
  }
}
