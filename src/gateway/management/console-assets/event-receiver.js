import { ask } from './api.js'
import { actionButton } from './card.js'
import { element, fill } from './element.js'
import { errorNotice } from './notice.js'

/** State of a receiver of events: a webhook or a notification channel. */
export function receiverState({ active, failures }) {
  if (!active) return { text: 'Paused', tone: 'plain' }
  return failures > 0 ? { text: 'Not delivered', tone: 'bad' } : { text: 'Active', tone: 'good' }
}

/** The choice that stands for these event types, if there is one. */
export function choiceOf(choices, types) {
  const sorted = (its) => [...its].sort().join()
  return choices.find((it) => sorted(it.types) === sorted(types))
}

/**
 * Buttons that send a test message, and that pause or resume a receiver. `outcome` shows their result.
 * @param {{ path: string, name: string, active: boolean, sentText: (text: string) => string,
 *   replace: (item: any) => void }} options
 */
export function receiverActions({ path, name, active, sentText, replace }) {
  const outcome = element('p', { class: 'outcome', role: 'status' })
  const problem = element('div', {})
  const attempt = (run) => async () => {
    fill(problem)
    try {
      await run()
    } catch (error) {
      fill(outcome)
      fill(problem, errorNotice(error))
    }
  }
  const test = attempt(async () => {
    fill(outcome, 'Sending…')
    const { ok, text } = await ask('POST', `api/${path}/test`)
    fill(outcome, ok ? sentText(text) : text)
  })
  const toggle = attempt(async () => {
    replace(await ask('PATCH', `api/${path}`, { body: { active: !active } }))
  })
  return {
    testButton: actionButton('Test', name, test),
    toggleButton: actionButton(active ? 'Pause' : 'Resume', name, toggle),
    outcome: [outcome, problem],
  }
}
