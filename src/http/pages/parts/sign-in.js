import { element, fill } from './element.js'
import { errorNotice } from './notice.js'

/**
 * Returns the sign-in page. `ways` returns its forms, made with `form`. `signIn` gets the name and the
 * value of a field, and resolves with the session.
 * @param {{ title: string, notice?: string, signIn: (name: string, value: string) => Promise<any>,
 *   onSignedIn: (session: any) => void, ways: (form: (options: any) => HTMLElement) => HTMLElement[] }} options
 */
export function signInPage({ title, notice, signIn, onSignedIn, ways }) {
  const problem = element(
    'div',
    {},
    notice && element('p', { class: 'notice', role: 'status' }, notice),
  )
  return element(
    'main',
    { id: 'main', class: 'sign-in' },
    element('img', { src: 'icon.svg', alt: '', width: '48', height: '48' }),
    element('h1', { tabindex: '-1' }, title),
    problem,
    ways(form),
  )

  function form({ name, label, hint, input: attributes, action, isPrimary = false }) {
    const input = element('input', {
      id: name,
      name,
      required: true,
      'aria-describedby': `${name}-hint`,
      ...attributes,
    })
    const submit = element(
      'button',
      { type: 'submit', class: `button ${isPrimary ? 'button-primary' : ''}` },
      action,
    )
    return element(
      'form',
      { onsubmit: (event) => enter(event, { name, input, submit }) },
      element(
        'div',
        { class: 'field' },
        element('label', { for: name }, label),
        input,
        element('p', { class: 'hint', id: `${name}-hint` }, hint),
      ),
      submit,
    )
  }

  async function enter(event, { name, input, submit }) {
    event.preventDefault()
    submit.disabled = true
    fill(problem)
    try {
      onSignedIn(await signIn(name, input.value))
    } catch (error) {
      fill(problem, errorNotice(error))
      input.select()
    } finally {
      submit.disabled = false
    }
  }
}
