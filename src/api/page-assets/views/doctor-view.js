import { ask } from '../api.js'
import { element, fill } from '../element.js'
import { icon } from '../icon.js'
import { errorNotice } from '../notice.js'
import { viewHead } from '../view.js'

const OUTCOMES = {
  good: { word: 'Holds', icon: 'done' },
  bad: { word: 'Does not hold', icon: 'attention' },
  skipped: { word: 'Not looked at', icon: 'skipped' },
}

/** Each link of the chain, looked at by the agent when somebody presses the button. */
export function doctorView() {
  const outcome = element('div', { role: 'status' })
  const list = element('ol', { class: 'findings', 'aria-label': 'Findings' })
  const button = element(
    'button',
    { type: 'button', class: 'button button-primary', onclick: examine },
    'Examine now',
  )
  const node = element(
    'div',
    {},
    viewHead(
      'Doctor',
      'Looks at each link between this device and its visitors, in order.',
      button,
    ),
    outcome,
    list,
  )
  let isOpen = true
  return {
    node,
    open: () => {},
    close: () => {
      isOpen = false
    },
  }

  async function examine() {
    if (button.getAttribute('aria-disabled') === 'true') return
    // A button that is disabled loses the focus.
    button.setAttribute('aria-disabled', 'true')
    fill(outcome, element('p', { class: 'notice' }, 'Looking. This takes a few seconds.'))
    fill(list)
    try {
      const { failures, findings } = await ask('GET', 'api/doctor')
      if (!isOpen) return
      fill(outcome, summary(failures))
      fill(list, findings.map(findingRow))
    } catch (error) {
      fill(outcome, errorNotice(error))
    } finally {
      button.setAttribute('aria-disabled', 'false')
    }
  }
}

function summary(failures) {
  if (failures === 0) {
    return element('p', { class: 'notice notice-good' }, 'Everything that was looked at is well.')
  }
  const [noun, verb] = failures === 1 ? ['thing', 'is'] : ['things', 'are']
  return element(
    'p',
    { class: 'notice notice-bad' },
    `${failures} ${noun} ${verb} not well; begin with the first.`,
  )
}

function findingRow({ check, outcome, detail, remedy }) {
  const { word, icon: name } = OUTCOMES[outcome]
  return element(
    'li',
    { class: `finding finding-${outcome}` },
    element('span', { class: 'finding-mark' }, icon(name)),
    element(
      'div',
      {},
      element(
        'p',
        {},
        element('strong', {}, check),
        element('span', { class: 'visually-hidden' }, ` ${word}:`),
        element('span', { class: 'finding-detail' }, ` ${detail}`),
      ),
      remedy && element('p', { class: 'remedy' }, remedy),
    ),
  )
}
