import { badge } from './card.js'

const TONES = {
  working: 'good',
  service_down: 'bad',
  service_slow: 'wait',
  busy: 'wait',
  slow_link: 'wait',
  opening: 'wait',
  checking: 'wait',
  offline: 'bad',
  refused: 'bad',
  unverified: 'wait',
}

const SERVING = new Set(['working', 'slow_link', 'unverified'])

/** Whether visitors of a tunnel in this state are served. */
export const isServing = (condition) => SERVING.has(condition)

/** Whether visitors of a tunnel in this state get errors. */
export const isBad = (condition) => TONES[condition] === 'bad'

/** Tone of the state, for badges and dots. */
export const toneOfCondition = (condition) => TONES[condition]

export const conditionText = (condition) => condition.replace('_', ' ')

/** State of a tunnel for its visitors, in the same words on each page. */
export const conditionBadge = (condition) => badge(conditionText(condition), TONES[condition])
