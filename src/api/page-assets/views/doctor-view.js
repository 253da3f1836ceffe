import { ask } from '../api.js'
import { element, fill } from '../element.js'
import { icon } from '../icon.js'
import { errorNotice } from '../notice.js'
import { viewHead } from '../view.js'

const OUTCOMES = {
  good: { word: 'Passed', icon: 'done' },
  bad: { word: 'Failed', icon: 'attention' },
  skipped: { word: 'Skipped', icon: 'skipped' },
  // A check that passed, and has a remedy.
  note: { word: 'Note', icon: 'attention' },
}

/** Each link of the chain, looked at by the agent when somebody presses the button. */
export function doctorView() {
  const outcome = element('div', { role: 'status' })
  const list = element('ol', { class: 'findings', 'aria-label': 'Findings' })
  const button = element(
    'button',
    { type: 'button', class: 'button button-primary', onclick: examine },
    'Run checks',
  )
  const node = element(
    'div',
    {},
    viewHead(
      'Doctor',
      'Checks settings, network, service, tunnels and upstreams in order.',
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
    fill(outcome, element('p', { class: 'notice' }, 'Running checks. This takes a few seconds.'))
    fill(list)
    try {
      const { findings } = await ask('GET', 'api/doctor')
      if (!isOpen) return
      fill(outcome, summary(findings))
      fill(list, findings.map(findingRow))
    } catch (error) {
      fill(outcome, errorNotice(error))
    } finally {
      button.setAttribute('aria-disabled', 'false')
    }
  }
}

function summary(findings) {
  const failures = findings.filter((it) => kindOf(it) === 'bad').length
  const notes = findings.filter((it) => kindOf(it) === 'note').length
  if (failures + notes === 0) {
    return element('p', { class: 'notice notice-good' }, 'All checks passed.')
  }
  const noun = failures === 1 ? 'check' : 'checks'
  const failed =
    failures === 0 ? 'No check failed.' : `${failures} ${noun} failed. Start with the first.`
  const noted = notes === 1 ? ' 1 note has a fix.' : ` ${notes} notes have a fix.`
  return element(
    'p',
    { class: `notice notice-${failures === 0 ? 'wait' : 'bad'}` },
    `${failed}${notes === 0 ? '' : noted}`,
  )
}

function kindOf({ outcome, remedy }) {
  return outcome === 'good' && remedy ? 'note' : outcome
}

function findingRow(finding) {
  const { check, detail, remedy } = finding
  const kind = kindOf(finding)
  const { word, icon: name } = OUTCOMES[kind]
  return element(
    'li',
    { class: `finding finding-${kind}` },
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
