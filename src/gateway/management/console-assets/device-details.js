import { ask } from './api.js'
import { actionButton, facts } from './card.js'
import { conditionBadge } from './condition.js'
import { confirm } from './confirm.js'
import { reasonOf } from './device-states.js'
import { openForm, textField } from './dialog.js'
import { element, fill, keepChildren, setText } from './element.js'
import { endpointWithCharts, trafficCharts } from './endpoint-charts.js'
import { versionOf } from './endpoint-details.js'
import { formatDate } from './format.js'
import { errorNotice, say } from './notice.js'
import { measureRates } from './rates.js'

const MINUTES = 60

/** All that is known of one device, asked for again with each `refresh`. */
export function deviceDetails({ id, name }, reload) {
  const problem = element('div', {})
  const reason = element('p', { class: 'device-reason' })
  const about = element('div', {})
  const charts = element('div', { class: 'charts' })
  const rows = element('ul', { class: 'endpoints', 'aria-label': `Endpoints of ${name}` })
  const last = element('p', { class: 'hint' })
  const actions = element('div', { class: 'row' })
  const node = element('div', {}, problem, reason, actions, about, charts, rows, last)
  const kept = new Map()
  const rates = measureRates()
  let isClosed = false
  let shown
  void refresh()
  return { node, refresh, close: () => (isClosed = true) }

  async function refresh() {
    try {
      const device = await ask('GET', `api/device_details/${id}`, { isBackground: true })
      if (isClosed) return
      fill(problem)
      show(device)
    } catch (error) {
      if (!isClosed && problem.textContent !== error.message) fill(problem, errorNotice(error))
    }
  }

  function show(device) {
    const [measured] = rates.measure([device])
    setText(reason, reasonOf({ state: device.state, reason: device.offline_reason }))
    reason.hidden = reason.textContent === ''
    showAbout(device)
    showCharts(device)
    keepChildren(rows, measured.endpoints.map(versionOf), kept, endpointWithCharts)
    setText(last, lastSentence(device))
    last.hidden = last.textContent === ''
  }

  /** What changes seldom is drawn anew when it does: nobody loses the button under the pointer. */
  function showAbout(device) {
    const text = JSON.stringify({
      ...device,
      traffic: 0,
      endpoints: 0,
      last_seen_at: 0,
      latency_ms: 0,
    })
    if (text === shown) return
    shown = text
    const { duplicate, tunnel_sessions: sessions, last_seen_at: seenAt } = device
    fill(
      about,
      facts(
        ['Last seen', device.online ? 'now' : seenAt && formatDate(seenAt)],
        ['Since', device.since && formatDate(device.since)],
        ['Address', device.ip],
        ['Machine', device.hostname],
        ['System', [device.os, device.arch].filter(Boolean).join(' · ')],
        ['Agent', device.agent_version],
        ['Owner', device.owner],
        ['Authtoken', device.authtoken || device.credential?.id],
        ['Id', element('code', {}, device.id)],
        [
          'Not served',
          device.refused_endpoints?.length > 0 &&
            device.refused_endpoints.map(({ url, text, error_code: code }) =>
              element('span', {}, conditionBadge('refused'), ` ${url}: ${text} (${code}) `),
            ),
        ],
        [
          'Connected twice',
          duplicate && `from ${duplicate.ip}, refused ${formatDate(duplicate.seen_at)}`,
        ],
      ),
    )
    fill(
      actions,
      actionButton('Edit', device.name, () => edit(device, reload)),
      sessions[0] && [
        actionButton('Restart', device.name, () => command('restart', sessions[0], device.name)),
        actionButton('Stop', device.name, () => command('stop', sessions[0], device.name), true),
      ],
      ['offline', 'never'].includes(device.state) &&
        actionButton('Delete', device.name, () => forget(device, reload), true),
    )
  }

  /** The sums of all endpoints, where there is more than one. */
  function showCharts({ endpoints }) {
    const histories = endpoints.map(({ history }) => history).filter(Boolean)
    if (endpoints.length < 2 || histories.length === 0) return fill(charts)
    const sum = (what) =>
      Array.from({ length: MINUTES }, (_, at) =>
        histories.reduce((total, history) => total + history[what][at], 0),
      )
    const series = { requests: sum('requests'), errors: sum('errors'), bytes: sum('bytes') }
    fill(charts, trafficCharts(series))
  }
}

function lastSentence({ state, endpoints, last_endpoints: urls }) {
  if (state === 'never') return 'Its authtoken has not been used yet.'
  if (endpoints.length > 0) return ''
  if (urls.length === 0) return 'No open endpoints.'
  return `Previously: ${urls.length === 1 ? '' : `${urls.length} endpoints, `}${urls.slice(0, 3).join(', ')}${urls.length > 3 ? ' and others' : ''}.`
}

async function edit(device, reload) {
  const isDone = await openForm({
    title: `Edit ${device.name}`,
    fields: [
      textField({
        name: 'name',
        label: 'Name',
        value: device.name,
        hint: 'Leave empty to show the host name of the machine.',
      }),
      textField({
        name: 'tags',
        label: 'Tags',
        value: device.tags.join(', '),
        placeholder: 'hall-3, camera',
        hint: 'Separated by commas. Use tags to filter devices.',
      }),
    ],
    action: 'Save',
    run: ({ name, tags }) =>
      ask('PATCH', `api/devices/${device.id}`, {
        body: {
          // One that nobody has given stays the machine's.
          ...(name.trim() !== device.name && { name: name.trim() }),
          tags: tags.split(/[\s,]+/).filter(Boolean),
        },
      }),
  })
  if (!isDone) return
  say(`${isDone.name} was saved.`)
  await reload()
}

function command(verb, { id }, name) {
  const isStop = verb === 'stop'
  return confirm({
    title: isStop ? `Stop the agent of ${name}?` : `Restart the agent of ${name}?`,
    text: isStop
      ? 'All its endpoints go offline until the agent is started again on the device.'
      : 'Its endpoints go offline for a moment and return with the agent.',
    action: isStop ? 'Stop agent' : 'Restart agent',
    isDangerous: isStop,
    method: 'POST',
    path: `api/tunnel_sessions/${id}/${verb}`,
    said: `The agent of ${name} was told to ${verb}.`,
  })
}

async function forget({ id, name }, reload) {
  const isDone = await confirm({
    title: `Delete ${name}?`,
    text: 'Its name, tags and history are deleted. Its authtoken stays valid, so the device can connect again.',
    action: 'Delete device',
    method: 'DELETE',
    path: `api/devices/${id}`,
    said: `${name} was deleted.`,
  })
  if (isDone) await reload()
}
