import { ask } from './api.js'
import { openForm } from './dialog.js'
import { say } from './notice.js'

/**
 * Asks whether something is really to be done, does it, and says so. Resolves with true when it
 * was done.
 * @param {{ title: string, text: string, action: string, isDangerous?: boolean, method: string,
 *   path: string, body?: object, said: string }} options
 */
export async function confirm({ method, path, body, said, isDangerous = true, ...question }) {
  const isDone = await openForm({
    ...question,
    isDangerous,
    run: async () => {
      await ask(method, path, { body })
      return true
    },
  })
  if (isDone) say(said)
  return Boolean(isDone)
}
