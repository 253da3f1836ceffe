import { element, fill } from './element.js'
import { waitNotice } from './notice.js'

/** Says which gateways of the site do not answer, so that nobody takes a part for the whole. */
export function missingNodes() {
  const node = element('div', {})
  let said = ''
  return { node, show }

  function show(missing = []) {
    const names = missing.map(({ name }) => name).join(', ')
    // The same sentence is not read out again and again.
    if (names === said) return
    said = names
    const sentence = `No answer from ${names}. Figures of its devices are missing.`
    fill(node, names !== '' && waitNotice(sentence))
  }
}
