import { ask } from '../api.js'
import { element, fill } from '../element.js'
import { errorNotice } from '../notice.js'

/** The way in: one API key. `onSignedIn` gets the key that the session acts as. */
export function signInView({ notice, onSignedIn }) {
  const problem = element('div', {}, notice && element('p', { class: 'notice' }, notice))
  const input = element('input', {
    id: 'api-key',
    type: 'password',
    name: 'api-key',
    autocomplete: 'current-password',
    required: true,
    'aria-describedby': 'api-key-hint',
  })
  const submit = element('button', { type: 'submit', class: 'button button-primary' }, 'Sign in')
  return element(
    'main',
    { id: 'main', class: 'sign-in' },
    element('img', { src: 'icon.svg', alt: '', width: '48', height: '48' }),
    element('h1', { tabindex: '-1' }, 'Gateway console'),
    element(
      'form',
      { onsubmit: signIn },
      element(
        'div',
        { class: 'field' },
        element('label', { for: 'api-key' }, 'API key'),
        input,
        element('p', { class: 'hint', id: 'api-key-hint' }, 'It was shown once, when it was made.'),
      ),
      problem,
      submit,
    ),
  )

  async function signIn(event) {
    event.preventDefault()
    submit.disabled = true
    fill(problem)
    try {
      const { api_key } = await ask('POST', 'session', { body: { api_key: input.value } })
      onSignedIn(api_key)
    } catch (error) {
      fill(problem, errorNotice(error))
      input.select()
    } finally {
      submit.disabled = false
    }
  }
}
