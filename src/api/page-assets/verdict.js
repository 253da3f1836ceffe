import { ask } from './api.js'
import { facts } from './card.js'
import { element, fill, setText } from './element.js'
import { formatDistance } from './format.js'
import { icon } from './icon.js'
import { errorNotice, say } from './notice.js'

/** The device in one sentence, and the facts behind it. */
export function verdict({ onConfirmed }) {
  const mark = element('span', { class: 'verdict-mark' })
  const sentence = element('h1', { tabindex: '-1' }, 'Loading …')
  const notes = element('ul', { class: 'notes' })
  const details = element('div', {})
  const node = element(
    'section',
    { class: 'card verdict', 'aria-label': 'This device' },
    element('div', { class: 'verdict-line' }, mark, sentence),
    notes,
    details,
  )
  let shown = ''
  return { node, show }

  function show(status) {
    const tone = toneOf(status)
    node.dataset.tone = tone
    setText(sentence, status.verdict)
    // What has not changed is not made anew: somebody may be reading, or have the focus there.
    const now = JSON.stringify([tone, notesOf(status), factsOf(status)])
    if (now === shown) return
    shown = now
    fill(mark, icon(tone === 'good' ? 'done' : 'attention'))
    fill(
      notes,
      notesOf(status).map((note) => element('li', {}, note)),
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

function toneOf({ healthy, link }) {
  if (healthy) return 'good'
  return link.state === 'connecting' ? 'wait' : 'bad'
}

/** What to do about the link, and what else somebody has to know. */
function notesOf({
  verdict: sentence,
  link,
  own_endpoint: own,
  storage,
  resources,
  default_policy: policy,
  unverified,
}) {
  const all = [
    link.last_error,
    link.remedy,
    own?.last_error,
    own?.remedy,
    storage.problem,
    ...storage.unconfirmed.map(() => 'The database was damaged. Data may be missing.'),
    resources.last_error,
    resources.remedy,
    policy.problem,
    ...unverified,
  ]
  // What the sentence says already is not said twice.
  const isNews = (note) => typeof note === 'string' && note !== '' && !sentence.includes(note)
  return [...new Set(all.filter(isNews))]
}

function factsOf({ link, own_endpoint: own, device_id: id, versions, started_at: startedAt }) {
  const server = link.server_addr ?? 'the hosted service'
  return [
    ['Link', `${link.state} · ${server}${latency(link)}`],
    ['Since', formatDistance(link.since)],
    ['Own domain', own && `${own.domain} · ${own.state}`],
    ['Device', id],
    ['Version', `${versions.agent}, running since ${formatDistance(startedAt)}`],
  ]
}

function latency({ latency_ms: ms }) {
  return ms === null ? '' : ` · ${Math.round(ms)} ms`
}
