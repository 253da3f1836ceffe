import { element, fill } from './element.js'
import { errorNotice } from './notice.js'

/**
 * Opens a form above the page. `run` gets its values and may throw an ApiError, which is shown
 * with everything still filled in; what it resolves with is what the promise resolves with.
 * Whoever cancels gets undefined.
 * @param {{ title: string, text?: string, fields?: any[], action: string, isDangerous?: boolean,
 *   run: (values: Record<string, string>) => Promise<any> }} options
 * @returns {Promise<any>}
 */
export function openForm({ title, text, fields = [], action, isDangerous = false, run }) {
  return new Promise((resolve) => {
    const problem = element('div', {})
    const submit = element(
      'button',
      { type: 'submit', class: `button ${isDangerous ? 'button-danger' : 'button-primary'}` },
      action,
    )
    const form = element(
      'form',
      {
        novalidate: true,
        onsubmit: async (event) => {
          event.preventDefault()
          submit.disabled = true
          fill(problem)
          try {
            close(await run(Object.fromEntries(new FormData(form))))
          } catch (error) {
            fill(problem, errorNotice(error))
          } finally {
            submit.disabled = false
          }
        },
      },
      text && element('p', { class: 'dialog-text' }, text),
      fields,
      problem,
      buttons(
        element('button', { type: 'button', class: 'button', onclick: () => close() }, 'Cancel'),
        submit,
      ),
    )
    const { dialog, show } = createDialog(title, form)
    dialog.addEventListener('cancel', () => close())
    show()

    function close(result) {
      dialog.close()
      resolve(result)
    }
  })
}

/** Shows what can be seen this once: no key but the button closes it. Resolves when it closes. */
export function openNotice({ title, content, action }) {
  return new Promise((resolve) => {
    const done = element(
      'button',
      { type: 'button', class: 'button button-primary', onclick: () => dialog.close() },
      action,
    )
    const { dialog, show } = createDialog(title, element('div', {}, content, buttons(done)))
    dialog.addEventListener('cancel', (event) => event.preventDefault())
    dialog.addEventListener('close', () => resolve())
    show()
  })
}

/** @param {{ name: string, label: string, hint?: string, value?: string, placeholder?: string }} options */
export function textField({ name, label, hint, value = '', placeholder }) {
  const input = element('input', {
    id: `field-${name}`,
    name,
    value,
    placeholder,
    autocomplete: 'off',
    autocapitalize: 'none',
    spellcheck: 'false',
    'aria-describedby': hint && `hint-${name}`,
  })
  return field({ name, label, hint, control: input })
}

/** @param {{ name: string, label: string, hint?: string, options: [value: string, label: string][], onchange?: (event: any) => void }} options */
export function selectField({ name, label, hint, options, onchange }) {
  const select = element(
    'select',
    { id: `field-${name}`, name, onchange, 'aria-describedby': hint && `hint-${name}` },
    options.map(([value, text]) => element('option', { value }, text)),
  )
  return field({ name, label, hint, control: select })
}

function field({ name, label, hint, control }) {
  return element(
    'div',
    { class: 'field' },
    element('label', { for: `field-${name}` }, label),
    control,
    hint && element('p', { class: 'hint', id: `hint-${name}` }, hint),
  )
}

function buttons(...children) {
  return element('div', { class: 'dialog-buttons' }, children)
}

function createDialog(title, content) {
  const dialog = element(
    'dialog',
    { 'aria-labelledby': 'dialog-title' },
    element('h2', { id: 'dialog-title' }, title),
    content,
  )
  dialog.addEventListener('close', () => dialog.remove())
  const show = () => {
    document.body.append(dialog)
    dialog.showModal()
  }
  return { dialog, show }
}
