import { element, setText } from './element.js'

const SHOWN_MS = 5_000

/** Returns an error message. Screen readers read it at once. */
export function errorNotice(error) {
  return element('p', { class: 'notice notice-error', role: 'alert' }, error.message)
}

/** Returns a message for a temporary state. Screen readers read it when they are idle. */
export function waitNotice(sentence) {
  return element('p', { class: 'notice', role: 'status' }, sentence)
}

/** Returns the area for short confirmations. Screen readers read them when they are idle. */
export function createToast() {
  const node = element('div', { class: 'toast', role: 'status' })
  let timer
  document.addEventListener('said', (/** @type {any} */ event) => {
    clearTimeout(timer)
    // Content outside an open dialog is not shown or read. The text is cleared first, so that a
    // repeated message is read again.
    const place = document.querySelector('dialog[open]') ?? document.body
    if (node.parentNode !== place) place.append(node)
    setText(node, '')
    requestAnimationFrame(() => setText(node, event.detail))
    timer = setTimeout(() => setText(node, ''), SHOWN_MS)
  })
  return node
}

/** Shows a short confirmation. */
export function say(text) {
  document.dispatchEvent(new CustomEvent('said', { detail: text }))
}
