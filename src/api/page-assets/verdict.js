import { ask } from './api.js'
import { facts } from './card.js'
import { isServing } from './condition.js'
import { element, fill, setText } from './element.js'
import { formatDistance } from './format.js'
import { icon } from './icon.js'
import { errorNotice, say } from './notice.js'

/** How many tunnels work, the most important problems with their fixes, and the facts. */
export function verdict({ hostname, onConfirmed }) {
  const mark = element('span', { class: 'verdict-mark' })
  const sentence = element('span', {}, 'Loading …')
  const heading = element(
    'h1',
    { tabindex: '-1' },
    element('span', { class: 'hostname' }, hostname),
    element('span', { class: 'visually-hidden' }, ': '),
    sentence,
  )
  const notes = element('ul', { class: 'notes' })
  const summary = element('summary', {})
  const details = element('div', {})
  const node = element(
    'section',
    { class: 'card verdict', 'aria-label': 'This device' },
    element('div', { class: 'verdict-line' }, mark, heading),
    notes,
    element('details', { class: 'verdict-facts' }, summary, details),
  )
  let shown = ''
  return { node, show }

  function show(status, tunnels) {
    const tone = toneOf(status, tunnels)
    node.dataset.tone = tone
    setText(sentence, status.verdict)
    setText(summary, linkText(status.link))
    // What has not changed is not made anew: somebody may be reading, or have the focus there.
    const now = JSON.stringify([tone, status.advice, status.storage, factsOf(status)])
    if (now === shown) return
    shown = now
    fill(mark, icon(tone === 'good' ? 'done' : 'attention'))
    fill(
      notes,
      status.advice.map(({ problem, remedy }) =>
        element(
          'li',
          {},
          !tells(status.verdict, problem) && problem,
          element('div', { class: 'remedy' }, remedy),
        ),
      ),
      status.storage.unconfirmed.length > 0 && element('li', {}, confirmButton()),
    )
    fill(details, facts(...factsOf(status)))
  }

  function confirmButton() {
    const button = element(
      'button',
      { type: 'button', class: 'button button-change', onclick: confirm },
      'Confirm',
    )
    return button

    async function confirm() {
      button.disabled = true
      try {
        await ask('POST', 'api/storage/confirm')
        say('Noted.')
        await onConfirmed()
      } catch (error) {
        button.after(errorNotice(error))
      } finally {
        button.disabled = false
      }
    }
  }
}

/** Green once each service was checked. Red only if no visitor is served. */
function toneOf({ healthy, link }, tunnels) {
  const isChecking = tunnels.some(({ condition }) => condition === 'checking')
  if (healthy && !isChecking) return 'good'
  const isEmpty = tunnels.length === 0 && link.state === 'up'
  const isUsable = isChecking || tunnels.some(({ condition }) => isServing(condition))
  return isUsable || isEmpty || link.state === 'connecting' ? 'wait' : 'bad'
}

/** Whether the headline has the problem, so that it is not told twice. */
function tells(headline, problem) {
  return headline.toLowerCase().includes(problem.toLowerCase().replace(/\.$/, ''))
}

function linkText({ state, latency_ms: ms }) {
  const speed = ms === null ? '' : `, ${Math.round(ms)} ms`
  return `Link ${state === 'waiting' ? 'down, next try soon' : state}${speed}`
}

function factsOf({ link, own_endpoint: own, device_id: id, versions, started_at: startedAt }) {
  const server = link.server_addr ?? 'the hosted service'
  return [
    ['Service', server],
    ['Link', `${link.state === 'waiting' ? 'down' : link.state} · ${formatDistance(link.since)}`],
    ['Own domain', own && `${own.domain} · ${own.state}`],
    ['Device', id],
    ['Version', `${versions.agent}, running since ${formatDistance(startedAt)}`],
  ]
}
