/**
 * What the text of a policy says, JSON or YAML: the form in which a list shows it, or in which people
 * write it. Rejects with an Error that is a sentence.
 */
export async function readPolicyText(text: string): Promise<unknown> {
  try {
    return JSON.parse(text)
  } catch {
    // Loaded late: most policies come as JSON, and the library is a tenth of what an agent loads.
    const { readYamlDocument } = await import('../base/yaml-document.ts')
    return readYamlDocument(text)
  }
}
