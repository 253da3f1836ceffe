import { ask } from '../api.js'
import { element, fill } from '../element.js'
import { errorNotice } from '../notice.js'

/** The way in: a one-time code, or an API token. `onSignedIn` gets the session. */
export function signInView({ notice, onSignedIn }) {
  const problem = element(
    'div',
    {},
    notice && element('p', { class: 'notice', role: 'status' }, notice),
  )
  return element(
    'main',
    { id: 'main', class: 'sign-in' },
    element('img', { src: 'icon.svg', alt: '', width: '48', height: '48' }),
    element('h1', { tabindex: '-1' }, 'Device agent'),
    problem,
    form({
      name: 'code',
      label: 'One-time code',
      hint: [
        'Ask the device for one: ',
        element('code', {}, 'sudo device-agent page'),
        '. It is good for five minutes.',
      ],
      input: {
        type: 'text',
        class: 'code-input',
        placeholder: 'XXXX-XXXX-XXXX',
        autocomplete: 'one-time-code',
        autocapitalize: 'characters',
        spellcheck: 'false',
      },
      action: 'Sign in',
      isPrimary: true,
    }),
    element(
      'details',
      { class: 'other-way' },
      element('summary', {}, 'Use an API token instead'),
      form({
        name: 'token',
        label: 'API token',
        hint: isPrivate()
          ? 'As the API takes it.'
          : 'This page comes over plain HTTP: others in this network could read the token. A code is safer.',
        input: { type: 'password', autocomplete: 'current-password' },
        action: 'Sign in with the token',
      }),
    ),
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
      { onsubmit: (event) => signIn(event, { name, input, submit }) },
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

  async function signIn(event, { name, input, submit }) {
    event.preventDefault()
    submit.disabled = true
    fill(problem)
    try {
      const { session } = await ask('POST', 'session', { body: { [name]: input.value } })
      onSignedIn(session)
    } catch (error) {
      fill(problem, errorNotice(error))
      input.select()
    } finally {
      submit.disabled = false
    }
  }
}

/** Nobody reads along on the way from this machine to itself. */
function isPrivate() {
  return location.protocol === 'https:' || /^(?:localhost|127\.|\[::1\])/.test(location.hostname)
}
