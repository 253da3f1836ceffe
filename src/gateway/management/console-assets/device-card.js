import { badge, cardHead } from './card.js'
import { confirm } from './confirm.js'
import { element, keepChildren } from './element.js'
import { endpointRow } from './endpoint-row.js'
import { figures } from './figures.js'
import { formatDistance, formatNumber } from './format.js'
import { actionButton } from './views/list-view.js'

/** The card of a device, updated in place as its figures change. */
export function deviceCard(device) {
  const name = nameOf(device)
  const fields = figures('figures', [
    'Connected',
    'Latency',
    'Address',
    'Owner',
    'Authtoken',
    'System',
    'Agent',
  ])
  const endpoints = element('ul', { class: 'endpoints', 'aria-label': `Endpoints of ${name}` })
  const none = element('p', { class: 'hint' }, 'It has no endpoint open.')
  const kept = new Map()
  const node = element(
    'li',
    { class: 'card' },
    cardHead(name, {
      badge: badge('Online', 'good'),
      actions: [
        actionButton('Restart', name, () => command('restart', device, name)),
        actionButton('Stop', name, () => command('stop', device, name), true),
      ],
    }),
    fields.node,
    endpoints,
    none,
  )
  return { node, update }

  function update(now) {
    fields.show({
      Connected: formatDistance(now.started_at),
      Latency: now.latency_ms === null ? 'measuring' : `${formatNumber(now.latency_ms)} ms`,
      Address: now.ip,
      Owner: now.owner.bot_user ?? 'nobody',
      Authtoken: now.owner.authtoken || now.credential.id,
      System: [now.os, now.arch].filter(Boolean).join(' · ') || 'unknown',
      Agent: now.agent_version || 'unknown',
    })
    keepChildren(endpoints, now.endpoints, kept, endpointRow)
    none.hidden = now.endpoints.length > 0
  }
}

/** The hostname that it tells; agents that tell none are known by their authtoken. */
function nameOf({ hostname, metadata, owner, id }) {
  return hostname || (/^[\w. -]{1,64}$/.test(metadata) && metadata) || owner.authtoken || id
}

function command(verb, { id }, name) {
  const isStop = verb === 'stop'
  return confirm({
    title: isStop ? `Stop the agent of ${name}?` : `Restart the agent of ${name}?`,
    text: isStop
      ? 'All its endpoints go offline and stay so until somebody starts the agent again on the device.'
      : 'Its endpoints go offline for a moment and come back with the agent.',
    action: isStop ? 'Stop agent' : 'Restart agent',
    isDangerous: isStop,
    method: 'POST',
    path: `api/tunnel_sessions/${id}/${verb}`,
    said: `The agent of ${name} was told to ${verb}.`,
  })
}
