import { ask } from './api.js'
import { actionButton, cardHead, facts } from './card.js'
import { conditionBadge, isBad } from './condition.js'
import { openForm } from './dialog.js'
import { element, fill } from './element.js'
import { formatDistance } from './format.js'
import { say } from './notice.js'

/** A tunnel: where it leads, how it is, and what to do when it is not well. */
export function tunnelCard(tunnel, { onRemoved }) {
  const state = element('span', {})
  const problem = element('div', {})
  const details = element('div', {})
  const node = element(
    'li',
    { class: 'card tunnel' },
    cardHead(nameOf(tunnel), {
      badge: state,
      actions: [
        tunnel.protocol === 'http' &&
          element(
            'a',
            {
              class: 'button button-change',
              href: `#/inspect/${tunnel.id}`,
              'aria-label': `Inspect ${tunnel.domain}`,
            },
            'Inspect',
          ),
        actionButton('Remove', tunnel.domain, remove, true),
      ],
    }),
    problem,
    details,
  )
  let shown = ''
  return { node, update }

  function update(now) {
    const view = [now.condition, now.last_error, now.remedy, now.isQuiet, factsOf(now)]
    if (JSON.stringify(view) === shown) return
    shown = JSON.stringify(view)
    fill(state, conditionBadge(now.condition))
    fill(problem, now.reason !== null && !now.isQuiet && trouble(now))
    fill(details, facts(...factsOf(now).map(([name, value]) => [name, shownValue(name, value)])))
  }

  async function remove() {
    const isRemoved = await openForm({
      title: `Remove ${tunnel.domain}?`,
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
    say(`${tunnel.domain} was removed.`)
    await onRemoved()
  }
}

/** A web address leads there; others are read. */
function nameOf({ url }) {
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
