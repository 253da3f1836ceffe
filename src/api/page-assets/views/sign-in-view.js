import { ask } from '../api.js'
import { element } from '../element.js'
import { signInPage } from '../sign-in.js'

/** The way in: a one-time code, or an API token. `onSignedIn` gets the session. */
export function signInView({ notice, onSignedIn }) {
  return signInPage({
    title: 'Device agent',
    notice,
    signIn: async (name, value) =>
      (await ask('POST', 'session', { body: { [name]: value } })).session,
    onSignedIn,
    ways: (form) => [
      form({
        name: 'code',
        label: 'One-time code',
        hint: [
          'Create a code on the device: ',
          element('code', {}, 'sudo device-agent page'),
          '. The code is valid for five minutes.',
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
            ? 'A token of the agent API.'
            : 'This page uses plain HTTP. Others in this network could read the token, so a code is safer.',
          input: { type: 'password', autocomplete: 'current-password' },
          action: 'Sign in with the token',
        }),
      ),
    ],
  })
}

/** Nobody reads along on the way from this machine to itself. */
function isPrivate() {
  return location.protocol === 'https:' || /^(?:localhost|127\.|\[::1\])/.test(location.hostname)
}
