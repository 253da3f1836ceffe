import { ask } from './api.js'
import { element } from './element.js'
import { icon } from './icon.js'

const STEPS = [
  {
    path: 'reserved_domains',
    collection: 'reserved_domains',
    link: ['#/domains', 'Reserve a wildcard domain'],
    text: 'and add its two records to DNS.',
  },
  {
    path: 'bot_users',
    collection: 'bot_users',
    link: ['#/bot-users', 'Create a bot user'],
    text: 'to own the authtokens of your devices.',
  },
  {
    path: 'credentials',
    collection: 'credentials',
    link: ['#/authtokens', 'Create an authtoken'],
    text: 'that can open names below the domain.',
  },
]

/** What is still to do before the first device appears. */
export async function gettingStarted() {
  const answers = await Promise.all(STEPS.map(({ path }) => ask('GET', `api/${path}?limit=1`)))
  const steps = STEPS.map((step, at) => ({
    ...step,
    isDone: answers[at][step.collection].length > 0,
  }))
  return element(
    'div',
    { class: 'empty' },
    element('h2', {}, 'No devices yet'),
    element('p', {}, 'Connect a device in four steps.'),
    element('ol', { class: 'steps' }, steps.map(stepItem), startStep()),
  )
}

function stepItem({ link, text, isDone }) {
  const [href, label] = link
  return element(
    'li',
    { class: isDone ? 'is-done' : undefined },
    icon(isDone ? 'done' : 'open'),
    element(
      'span',
      {},
      element('a', { href }, label),
      ` ${text}`,
      isDone && element('span', { class: 'visually-hidden' }, ' Done.'),
    ),
  )
}

function startStep() {
  return element(
    'li',
    {},
    icon('open'),
    element(
      'span',
      {},
      'Set the authtoken on the device as ',
      element('code', {}, 'SVC_AUTHTOKEN'),
      ' and start ',
      element('code', {}, 'device-agent run'),
      '. The device then appears here.',
    ),
  )
}
