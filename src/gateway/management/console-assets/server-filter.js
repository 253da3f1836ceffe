/**
 * A filter of the API: each word is in one of the fields, and all `conditions` hold. Empty conditions are left
 * out. An ID is random, so it is found by its start. The server compares with case, so each word is also looked
 * for in lower case and with a capital letter.
 * @param {string[]} words
 * @param {string[]} fields
 * @param {(string | undefined | false)[]} conditions
 */
export function serverFilter(words, fields, conditions = []) {
  const found = words.map((word) => {
    const tests = fields.flatMap((field) =>
      isId(field)
        ? [`obj.${field}.startsWith(${quoted(word)})`]
        : formsOf(word).map((form) => `obj.${field}.contains(${quoted(form)})`),
    )
    return `(${tests.join(' || ')})`
  })
  return [...found, ...conditions].filter(Boolean).join(' && ')
}

const isId = (field) => field === 'id' || field.endsWith('.id')

export const quoted = (text) => JSON.stringify(text.trim())

function formsOf(word) {
  const lower = word.toLowerCase()
  return [...new Set([word, lower, lower.charAt(0).toUpperCase() + lower.slice(1)])]
}
