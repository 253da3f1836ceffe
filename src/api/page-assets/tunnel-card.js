import { ask } from './api.js'
import { actionButton, cardHead, facts } from './card.js'
import { conditionBadge, isBad } from './condition.js'
import { copyButton } from './copy-button.js'
import { openForm } from './dialog.js'
import { element, fill } from './element.js'
import { formatDistance } from './format.js'
import { say } from './notice.js'

/** A tunnel: where it leads, how it is, and what to do when it is not well. */
export function tunnelCard(tunnel, { onRemoved }) {
  let named = tunnel
  const name = element('span', {})
  const copy = element('span', {})
  const state = element('span', {})
  const removal = actionButton('Remove', titleOf(tunnel), remove, true)
  const inspection = element(
    'a',
    { class: 'button button-change', href: `#/inspect/${tunnel.id}` },
    'Inspect',
  )
  showName(tunnel)
  const problem = element('div', {})
  const details = element('div', {})
  const node = element(
    'li',
    { class: 'card tunnel' },
    cardHead(name, {
      badge: element('span', { class: 'row' }, copy, state),
      actions: [tunnel.protocol === 'http' && inspection, removal],
    }),
    problem,
    details,
  )
  let shown = ''
  return { node, update }

  /** A tunnel without a name gets one when the link is up. */
  function showName(now) {
    named = now
    fill(name, nameOf(now))
    fill(copy, now.url !== '' && copyButton(now.url, now.url))
    inspection.setAttribute('aria-label', `Inspect ${titleOf(now)}`)
    removal.setAttribute('aria-label', `Remove ${titleOf(now)}`)
  }

  function update(now) {
    if (now.url !== named.url) showName(now)
    const view = [now.condition, now.last_error, now.remedy, now.isQuiet, factsOf(now)]
    if (JSON.stringify(view) === shown) return
    shown = JSON.stringify(view)
    fill(state, conditionBadge(now.condition))
    fill(problem, now.reason !== null && !now.isQuiet && trouble(now))
    fill(details, facts(...factsOf(now).map(([name, value]) => [name, shownValue(name, value)])))
  }

  async function remove() {
    const isRemoved = await openForm({
      title: `Remove ${titleOf(named)}?`,
      text: `Its public URL stops working immediately and returns 404. The service at ${tunnel.forwards_to} keeps running.`,
      action: 'Remove tunnel',
      isDangerous: true,
      run: async () => {
        // By its id: another one may have the name by now.
        await ask('DELETE', `api/tunnels/${tunnel.id}`)
        return true
      },
    })
    if (!isRemoved) return
    say(`${titleOf(named)} was removed.`)
    await onRemoved()
  }
}

const titleOf = ({ domain, forwards_to }) => domain || `the tunnel to ${forwards_to}`

/** A web address leads there; others are read. */
function nameOf({ url }) {
  if (url === '') return 'Name pending'
  if (!url.startsWith('http')) return url
  return element('a', { href: url, target: '_blank', rel: 'noreferrer' }, url)
}

function factsOf(tunnel) {
  return [
    ['Forwards to', tunnel.forwards_to],
    ['Since', formatDistance(tunnel.since)],
    ['Next try', tunnel.next_retry_at && formatDistance(tunnel.next_retry_at)],
  ]
}

function shownValue(name, value) {
  return name === 'Forwards to' ? element('code', {}, value) : value
}

function trouble({ condition, last_error: error, reason, remedy }) {
  return element(
    'div',
    { class: `trouble trouble-${isBad(condition) ? 'bad' : 'wait'}` },
    element('p', {}, error ?? reason),
    remedy && element('p', { class: 'remedy' }, remedy),
  )
}
