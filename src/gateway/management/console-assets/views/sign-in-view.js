import { ask } from '../api.js'
import { signInPage } from '../sign-in.js'

/** The way in: one API key. `onSignedIn` gets the key that the session acts as. */
export function signInView({ notice, onSignedIn }) {
  return signInPage({
    title: 'Gateway console',
    notice,
    signIn: async (name, value) =>
      (await ask('POST', 'session', { body: { [name]: value } })).api_key,
    onSignedIn,
    ways: (form) => [
      form({
        name: 'api_key',
        label: 'API key',
        hint: 'Shown once when it was created. To see the first key, run sudo device-agent gateway show api-key on the server.',
        input: { type: 'password', autocomplete: 'current-password' },
        action: 'Sign in',
        isPrimary: true,
      }),
    ],
  })
}
