import { element } from './element.js'
import { icon } from './icon.js'
import { say } from './notice.js'

const COPY = 'Copy'
const SHOWN_MS = 1_500

/** Returns a button that copies a text. `what` names it, as in “Copy the name”. */
export function copyButton(text, what) {
  const button = element(
    'button',
    {
      type: 'button',
      class: 'button button-quiet button-copy',
      'aria-label': `Copy ${what}`,
      onclick: async () => {
        const isCopied = await copy(text, button)
        say(isCopied ? 'Copied.' : 'This browser does not allow copying. Select the text instead.')
        if (isCopied) flash(button, what)
      },
    },
    icon('copy'),
    element('span', {}, COPY),
  )
  return button
}

function flash(button, what) {
  const show = (word) => {
    button.querySelector('span').textContent = word
    // The name has to contain the visible text (WCAG 2.5.3).
    button.setAttribute('aria-label', `${word} ${what}`)
  }
  button.classList.add('is-done')
  show('Copied')
  setTimeout(() => {
    button.classList.remove('is-done')
    show(COPY)
  }, SHOWN_MS)
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copyFromSelection(text, button)
  }
}

/** Without TLS, browsers block the clipboard API, but not copying a selection. */
function copyFromSelection(text, button) {
  const area = element('textarea', { class: 'visually-hidden', readonly: true }, text)
  // Next to the button: while a dialog is open, text outside of it cannot be selected.
  button.after(area)
  area.select()
  const isCopied = document.execCommand('copy')
  area.remove()
  button.focus()
  return isCopied
}
