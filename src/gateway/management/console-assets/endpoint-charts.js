import { chart } from './chart.js'
import { element, fill } from './element.js'
import { endpointRow } from './endpoint-row.js'
import { formatBytes, formatNumber } from './format.js'

/** An endpoint with its figures and the charts of its last hour, updated in place. */
export function endpointWithCharts(endpoint) {
  const row = endpointRow(endpoint)
  const charts = element('div', { class: 'charts' })
  row.node.append(charts)
  let shown
  return {
    node: row.node,
    update: (now) => {
      row.update(now)
      const text = JSON.stringify(now.history)
      if (text === shown) return
      shown = text
      fill(charts, now.history && trafficCharts(now.history))
    },
  }
}

/** Charts of values per minute. A chart of errors only if there are any. */
export function trafficCharts({ requests, errors = [], bytes }) {
  return [
    figure('Requests', requests, formatNumber),
    errors.some((count) => count > 0) && figure('Errors', errors, formatNumber, 'is-bad'),
    figure('Bytes', bytes, formatBytes),
  ]
}

function figure(what, values, format, className = '') {
  const last = element('span', { class: 'muted' }, `, last minute ${format(values.at(-1) ?? 0)}`)
  return element(
    'figure',
    { class: className },
    element('figcaption', {}, `${what} a minute`, last),
    chart(what, values, format),
  )
}
