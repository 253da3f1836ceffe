import { fill } from './element.js'
import { errorNotice } from './notice.js'

const SIGNS_OF_LIFE = ['keydown', 'pointermove', 'wheel', 'touchstart']

/**
 * Asks again and again while the page is seen. `look` gets whether nobody was at the page since it
 * asked last: only a person keeps the session. What fails is said in `problem`, once.
 * @param {{ everyMs: number, problem: HTMLElement, look: (isBackground: boolean) => Promise<void> }} options
 */
export function poll({ everyMs, problem, look }) {
  let timer
  let isWatched = true
  /** The answer to an earlier question than this one is of no interest any more. */
  let question = 0
  return { open, close, now }

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

  function followVisibility() {
    return document.hidden ? rest() : now()
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
    try {
      await look(isBackground)
      if (asked === question) fill(problem)
    } catch (error) {
      // The same sentence is not read out again and again.
      if (asked === question && problem.textContent !== error.message) {
        fill(problem, errorNotice(error))
      }
    }
    if (asked === question) timer = setTimeout(now, everyMs)
  }
}
