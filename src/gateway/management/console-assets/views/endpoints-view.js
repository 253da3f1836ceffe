import { conditionText, toneOfCondition } from '../condition.js'
import { endpointDetails } from '../endpoint-details.js'
import { formatBytes, formatCount, formatNumber } from '../format.js'
import { collator, listFilter } from '../list-filter.js'
import { liveListView } from './live-list-view.js'

/** States of cloud endpoints, in addition to those of devices. */
const CLOUD_STATES = {
  cloud: { text: 'Cloud endpoint', tone: 'good' },
  refusing: { text: 'Refuses all requests', tone: 'bad' },
}
const RANKS = { bad: 0, wait: 1, plain: 2, good: 3 }

/** All online endpoints, with their state and traffic. */
export function endpointsView() {
  return liveListView({
    title: 'Endpoints',
    intro: 'Online URLs, their state and traffic.',
    path: 'endpoint_rows',
    collection: 'endpoints',
    className: 'items-wide',
    sums: {
      Online: (endpoints) => endpoints.length,
      'With errors': (endpoints) => endpoints.filter(({ errors }) => errors > 0).length,
    },
    filter: endpointFilter,
    summary: summaryOf,
    details: endpointDetails,
    empty: {
      title: 'No endpoints online',
      text: 'An endpoint appears here when a device opens a tunnel, or when a cloud endpoint is created with the API.',
    },
  })
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
