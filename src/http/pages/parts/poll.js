import { fill } from './element.js'
import { errorNotice, waitNotice } from './notice.js'

/** Error code of a server that is starting. It is asked again soon. */
const STARTING = 'starting'
const STARTING_MS = 1_000
const STARTING_SENTENCE = 'Starting. This page reloads automatically.'
const SIGNS_OF_LIFE = ['keydown', 'pointermove', 'wheel', 'touchstart']

/**
 * Polls while the page is visible. `look` requests the data and resolves with a function that shows it.
 * That function is not called if another request has started in the meantime. `isBackground` is true
 * if there was no input since the last request: only user activity extends the session. An error is
 * shown in `problem`, once.
 * @param {{ everyMs: () => number, problem: HTMLElement,
 *   look: (isBackground: boolean) => Promise<() => unknown> }} options
 */
export function poll({ everyMs, problem, look }) {
  let timer
  let isWatched = true
  let isPaused = false
  /** Number of the latest request. Answers to earlier ones are ignored. */
  let question = 0
  return { open, close, now, pause }

  function open() {
    document.addEventListener('visibilitychange', followVisibility)
    for (const type of SIGNS_OF_LIFE) document.addEventListener(type, watch)
    return now()
  }

  function close() {
    document.removeEventListener('visibilitychange', followVisibility)
    for (const type of SIGNS_OF_LIFE) document.removeEventListener(type, watch)
    rest()
  }

  function watch() {
    isWatched = true
  }

  function pause(isToPause) {
    isPaused = isToPause
    return followVisibility()
  }

  function followVisibility() {
    return document.hidden || isPaused ? rest() : now()
  }

  function rest() {
    question += 1
    clearTimeout(timer)
  }

  async function now() {
    rest()
    const asked = question
    const isBackground = !isWatched
    isWatched = false
    let isStarting = false
    try {
      const show = await look(isBackground)
      if (asked !== question) return
      fill(problem)
      await show()
    } catch (error) {
      isStarting = error.code === STARTING
      // Not replaced by the same sentence, so that screen readers do not repeat it.
      const sentence = isStarting ? STARTING_SENTENCE : error.message
      if (asked === question && problem.textContent !== sentence) {
        fill(problem, isStarting ? waitNotice(sentence) : errorNotice(error))
      }
    }
    if (asked === question && !isPaused) {
      timer = setTimeout(now, isStarting ? STARTING_MS : everyMs())
    }
  }
}
