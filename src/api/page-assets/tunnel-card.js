import { ask } from './api.js'
import { actionButton, badge, cardHead, facts } from './card.js'
import { openForm } from './dialog.js'
import { element, fill } from './element.js'
import { formatDistance } from './format.js'
import { say } from './notice.js'

const STATE_TONES = {
  online: 'good',
  opening: 'wait',
  waiting: 'wait',
  closing: 'plain',
  refused: 'bad',
}
const UPSTREAM_TONES = {
  up: 'good',
  slow: 'wait',
  busy: 'wait',
  down: 'bad',
  garbage: 'bad',
  untrusted: 'bad',
  old_tls: 'bad',
}
const UPSTREAMS = {
  up: 'answers',
  slow: 'slow',
  busy: 'busy',
  down: 'not responding',
  garbage: 'not HTTP',
  untrusted: 'certificate not trusted',
  old_tls: 'TLS too old',
}

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
    const view = [now.state, now.last_error, now.remedy, factsOf(now)]
    if (JSON.stringify(view) === shown) return
    shown = JSON.stringify(view)
    fill(state, badge(now.state, STATE_TONES[now.state]))
    fill(problem, now.reason !== null && trouble(now))
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
    ['Service', tunnel.upstream],
    ['Since', formatDistance(tunnel.since)],
    ['Next try', tunnel.next_retry_at && formatDistance(tunnel.next_retry_at)],
  ]
}

function shownValue(name, value) {
  if (name === 'Forwards to') return element('code', {}, value)
  if (name !== 'Service') return value
  const word = UPSTREAMS[value]
  return word && badge(word, UPSTREAM_TONES[value])
}

function trouble({ state, last_error: error, reason, remedy }) {
  return element(
    'div',
    { class: `trouble trouble-${state === 'refused' ? 'bad' : 'wait'}` },
    element('p', {}, error ?? reason),
    remedy && element('p', { class: 'remedy' }, remedy),
  )
}
