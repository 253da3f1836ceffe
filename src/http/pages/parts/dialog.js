import { element, fill } from './element.js'
import { errorNotice } from './notice.js'

/**
 * Opens a form in a dialog. `run` gets its values and may throw an ApiError. The error is shown and
 * the form stays filled in. A problem of a field is shown once, at the field, and the message of the error
 * only if it is a conflict. Resolves with the result of `run`, or with undefined if cancelled.
 * @param {{ title: string, text?: string, fields?: any[], action: string, isDangerous?: boolean,
 *   run: (values: any) => Promise<any> }} options
 * @returns {Promise<any>}
 */
export function openForm({ title, text, fields = [], action, isDangerous = false, run }) {
  return new Promise((resolve) => {
    let isHeld = false
    const problem = element('div', {})
    const cancel = element(
      'button',
      { type: 'button', class: 'button', onclick: () => isHeld || close() },
      'Cancel',
    )
    const submit = element(
      'button',
      { type: 'submit', class: `button ${isDangerous ? 'button-danger' : 'button-primary'}` },
      action,
    )
    const form = element(
      'form',
      { novalidate: true, onsubmit: send },
      text && element('p', { class: 'dialog-text' }, text),
      fields,
      problem,
      buttons(cancel, submit),
    )
    const close = showDialog(title, form, {
      isHeld: () => isHeld,
      onClosed: () => resolve(undefined),
    })

    async function send(event) {
      event.preventDefault()
      if (isHeld) return
      hold(true)
      fill(problem)
      clearFields(form)
      try {
        resolve(await run(Object.fromEntries(new FormData(form))))
        close()
      } catch (error) {
        const { errors = [], isConflict = false, message } = error
        const others = markFields(form, errors)
        if (isConflict || others.length > 0 || errors.length === 0) {
          fill(problem, errorNotice({ message: [message, ...others].join('\n') }))
        }
      } finally {
        hold(false)
      }
    }

    /**
     * Keeps the dialog open during a request, which cannot be cancelled. The buttons only look
     * disabled: a disabled button loses the focus, and the dialog would not get key events.
     */
    function hold(isUnderWay) {
      isHeld = isUnderWay
      for (const button of [cancel, submit]) button.setAttribute('aria-disabled', String(isHeld))
    }
  })
}

/** Shows content that is visible only once. Only its button closes it. Resolves when it closes. */
export function openNotice({ title, content, action }) {
  return new Promise((/** @type {(nothing: void) => void} */ resolve) => {
    const done = element(
      'button',
      { type: 'button', class: 'button button-primary', onclick: () => close() },
      action,
    )
    const body = element('div', {}, content, buttons(done))
    const close = showDialog(title, body, { isHeld: () => true, onClosed: () => resolve() })
  })
}

/** @param {{ name: string, label: string, hint?: string, value?: string, placeholder?: string, type?: string }} options */
export function textField({ name, label, hint, value = '', placeholder, type = 'text' }) {
  const input = element('input', {
    id: `field-${name}`,
    name,
    type,
    value,
    placeholder,
    autocomplete: 'off',
    autocapitalize: 'none',
    spellcheck: 'false',
    'aria-describedby': hint && `hint-${name}`,
  })
  return field({ name, label, hint, control: input })
}

/** @param {{ name: string, label: string, hint?: string, value?: string, options: string[][], onchange?: (event: any) => void }} options */
export function selectField({ name, label, hint, value: chosen, options, onchange }) {
  const select = element(
    'select',
    { id: `field-${name}`, name, onchange, 'aria-describedby': hint && `hint-${name}` },
    options.map(([value, text]) => element('option', { value, selected: value === chosen }, text)),
  )
  return field({ name, label, hint, control: select })
}

/** @param {{ name: string, label: string, hint?: string, value?: string }} options */
export function longTextField({ name, label, hint, value = '' }) {
  const control = element(
    'textarea',
    {
      id: `field-${name}`,
      name,
      rows: '6',
      spellcheck: 'false',
      autocapitalize: 'none',
      'aria-describedby': hint && `hint-${name}`,
    },
    value,
  )
  return field({ name, label, hint, control })
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

/** Shows each error at its field, and returns the lines of the errors without a field. */
function markFields(form, errors) {
  const others = []
  for (const { pointer, detail } of errors) {
    const { control, rest } = controlOf(form, pointer.split('/').slice(1))
    const place = pathText(rest)
    if (!control) others.push([place, detail].filter(Boolean).join(': '))
    else if (place) markField(control, `${place}: ${detail}`)
    else markField(control, `${detail.charAt(0).toUpperCase()}${detail.slice(1)}`)
  }
  form.querySelector('[aria-invalid]')?.focus()
  return others
}

/** A field of the form has a name such as `upstream.timeout`. `rest` is the path within its value. */
function controlOf(form, path) {
  for (let length = path.length; length > 0; length -= 1) {
    const control = form.elements.namedItem(path.slice(0, length).join('.'))
    if (control) return { control, rest: path.slice(length) }
  }
  return { control: undefined, rest: path }
}

/** `on_http_request[0].actions[1].type` */
const pathText = (path) =>
  path.reduce((text, part) => {
    if (/^\d+$/.test(part)) return `${text}[${part}]`
    return text === '' ? part : `${text}.${part}`
  }, '')

function markField(control, text) {
  const id = `error-${control.name}`
  const place = control.closest('.field')
  place.closest('details')?.setAttribute('open', '')
  const shown = place.querySelector('.field-error')
  if (shown) {
    shown.append(`\n${text}`)
    return
  }
  control.after(element('p', { class: 'field-error', id, role: 'alert' }, text))
  const described = control.getAttribute('aria-describedby')
  control.setAttribute('aria-invalid', 'true')
  control.setAttribute('aria-describedby', described ? `${id} ${described}` : id)
}

function clearFields(form) {
  for (const control of form.querySelectorAll('[aria-invalid]')) {
    const id = `error-${control.name}`
    const others = control.getAttribute('aria-describedby').split(' ')
    control.removeAttribute('aria-invalid')
    control.setAttribute('aria-describedby', others.filter((it) => it !== id).join(' '))
  }
  for (const shown of form.querySelectorAll('.field-error')) shown.remove()
}

function buttons(...children) {
  return element('div', { class: 'dialog-buttons' }, children)
}

/**
 * Shows a dialog and returns a function that closes it. While `isHeld` returns true, keys such as
 * Escape do not close it. `onClosed` is called before the next key or click is handled. The browser's
 * own `close` event comes later, when a fast user may already have opened the next dialog.
 */
function showDialog(title, content, { isHeld, onClosed }) {
  const dialog = element(
    'dialog',
    {
      'aria-labelledby': 'dialog-title',
      onclose: leave,
      oncancel: (event) => {
        event.preventDefault()
        if (!isHeld()) close()
      },
      // In Chromium, a second Escape in a row closes the dialog in spite of oncancel.
      onkeydown: (event) => event.key === 'Escape' && isHeld() && event.preventDefault(),
    },
    element('h2', { id: 'dialog-title' }, title),
    content,
  )
  document.body.append(dialog)
  dialog.showModal()
  return close

  function close() {
    dialog.close()
    leave()
  }

  function leave() {
    dialog.remove()
    onClosed()
  }
}
