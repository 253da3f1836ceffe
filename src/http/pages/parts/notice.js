import { element, setText } from './element.js'

const SHOWN_MS = 5_000

/** A sentence in red, read out when it appears. */
export function errorNotice(error) {
  return element('p', { class: 'notice notice-error', role: 'alert' }, error.message)
}

/** What will soon be over, read out when there is time for it. */
export function waitNotice(sentence) {
  return element('p', { class: 'notice', role: 'status' }, sentence)
}

/** Where short confirmations appear; screen readers hear them when they are through. */
export function createToast() {
  const node = element('div', { class: 'toast', role: 'status' })
  let timer
  document.addEventListener('said', (/** @type {any} */ event) => {
    clearTimeout(timer)
    // Nothing beside an open dialog is seen or read out; and words said twice are to be heard twice.
    const place = document.querySelector('dialog[open]') ?? document.body
    if (node.parentNode !== place) place.append(node)
    setText(node, '')
    requestAnimationFrame(() => setText(node, event.detail))
    timer = setTimeout(() => setText(node, ''), SHOWN_MS)
  })
  return node
}

/** Confirms in a few words what was done. */
export function say(text) {
  document.dispatchEvent(new CustomEvent('said', { detail: text }))
}
