import { ask } from '../api.js'
import { conditionText, toneOfCondition } from '../condition.js'
import { element, fill } from '../element.js'
import { endpointDetails } from '../endpoint-details.js'
import { figures } from '../figures.js'
import { formatBytes, formatCount, formatNumber } from '../format.js'
import { itemList } from '../item-list.js'
import { collator, listFilter } from '../list-filter.js'
import { missingNodes } from '../missing-nodes.js'
import { poll } from '../poll.js'
import { measureSums } from '../rates.js'
import { emptyState, pauseButton, viewHead } from '../view.js'

const REFRESH_MS = 2_000
/** From so many endpoints on, the gateway is asked less often. */
const MANY = 500
const REFRESH_MANY_MS = 5_000
/** States of cloud endpoints, in addition to those of devices. */
const CLOUD_STATES = {
  cloud: { text: 'Cloud endpoint', tone: 'good' },
  refusing: { text: 'Refuses all requests', tone: 'bad' },
}
const RANKS = { bad: 0, wait: 1, plain: 2, good: 3 }

/** All online endpoints, with their state and traffic. */
export function endpointsView() {
  const sums = figures('summary', ['Online', 'With errors', 'Requests', 'In', 'Out'])
  const filter = endpointFilter(() => list.goToStart())
  const list = itemList({
    label: 'Endpoints',
    nouns: 'endpoints',
    className: 'items-wide',
    filter,
    summary: summaryOf,
    details: endpointDetails,
  })
  const below = element('div', { class: 'below' })
  const problem = element('div', {})
  const missing = missingNodes()
  const live = poll({
    everyMs: () => (count > MANY ? REFRESH_MANY_MS : REFRESH_MS),
    problem,
    look,
  })
  const node = element(
    'div',
    {},
    viewHead('Endpoints', 'Online URLs, their state and traffic.', pauseButton(live)),
    problem,
    missing.node,
    sums.node,
    filter.node,
    list.node,
    below,
  )
  const rates = measureSums()
  let count = 0
  for (const part of [sums.node, filter.node]) part.hidden = true
  return { node, open: live.open, close }

  function close() {
    list.close()
    live.close()
  }

  async function look(isBackground) {
    const answer = await ask('GET', 'api/endpoint_rows', { isBackground })
    return () => {
      const endpoints = rates.measure(answer.endpoints)
      count = endpoints.length
      missing.show(answer.missing_nodes)
      const isEmpty = count === 0
      for (const part of [sums.node, filter.node]) part.hidden = isEmpty
      fill(below, isEmpty && noEndpoints())
      sums.show(sumsOf(endpoints))
      filter.offer(endpoints)
      list.show(endpoints, { isPart: answer.is_part })
      list.refresh()
    }
  }
}

function endpointFilter(onChange) {
  const byUrl = (a, b) => collator.compare(a.url, b.url)
  const most = (value) => (a, b) => value(b) - value(a) || byUrl(a, b)
  return listFilter({
    label: 'Filter endpoints',
    placeholder: 'URL, device, name',
    texts: ({ url, name, device }) => [url, name, device?.name],
    selections: [{ name: 'state', label: 'State', of: (endpoint) => [stateOf(endpoint).text] }],
    orders: {
      url: { label: 'URL', compare: byUrl },
      trouble: {
        label: 'Problems first',
        compare: (a, b) => RANKS[stateOf(a).tone] - RANKS[stateOf(b).tone] || byUrl(a, b),
      },
      traffic: { label: 'Traffic', compare: most((it) => it.bytesPerS) },
      requests: { label: 'Requests', compare: most((it) => it.requests) },
      errors: { label: 'Errors', compare: most((it) => it.errors) },
    },
    onChange,
  })
}

function stateOf({ condition }) {
  const cloud = CLOUD_STATES[condition]
  if (cloud) return cloud
  const text = conditionText(condition)
  return { text: text.charAt(0).toUpperCase() + text.slice(1), tone: toneOfCondition(condition) }
}

function summaryOf(endpoint) {
  const { text, tone } = stateOf(endpoint)
  const { url, device, name, requests, errors, requestsPerS, bytesPerS } = endpoint
  const failed = errors > 0 ? ` · ${formatCount(errors, 'error')}` : ''
  return {
    name: url,
    tone,
    state: text,
    cells: [
      `${formatCount(requests, 'request')}${failed}`,
      `${formatNumber(requestsPerS)} req/s · ${formatBytes(bytesPerS)}/s`,
      device?.name ?? name,
    ],
  }
}

function noEndpoints() {
  return emptyState(
    'No endpoints online',
    'An endpoint appears here when a device opens a tunnel, or when a cloud endpoint is created with the API.',
  )
}

function sumsOf(endpoints) {
  const sum = (read) => endpoints.reduce((total, endpoint) => total + read(endpoint), 0)
  return {
    Online: formatNumber(endpoints.length),
    'With errors': formatNumber(endpoints.filter(({ errors }) => errors > 0).length),
    Requests: `${formatNumber(sum(({ requestsPerS }) => requestsPerS))}/s`,
    In: `${formatBytes(sum(({ bytesInPerS }) => bytesInPerS))}/s`,
    Out: `${formatBytes(sum(({ bytesOutPerS }) => bytesOutPerS))}/s`,
  }
}
