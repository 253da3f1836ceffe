import { fill } from './element.js'
import { errorNotice, waitNotice } from './notice.js'

/** A server that is starting answers so, and soon will. */
const STARTING = 'starting'
const STARTING_MS = 1_000
const STARTING_SENTENCE = 'Starting. This page reloads automatically.'
const SIGNS_OF_LIFE = ['keydown', 'pointermove', 'wheel', 'touchstart']

/**
 * Asks again and again while the page is seen. `look` gets whether nobody was at the page since it
 * asked last: only a person keeps the session. It resolves with what shows the answer, which is not
 * called when another one was asked for meanwhile. What fails is said in `problem`, once.
 * @param {{ everyMs: () => number, problem: HTMLElement,
 *   look: (isBackground: boolean) => Promise<() => unknown> }} options
 */
export function poll({ everyMs, problem, look }) {
  let timer
  let isWatched = true
  let isPaused = false
  /** The answer to an earlier question than this one is of no interest any more. */
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
      // The same sentence is not read out again and again.
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
