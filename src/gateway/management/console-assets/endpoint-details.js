import { ask } from './api.js'
import { element, fill, keepChildren } from './element.js'
import { endpointWithCharts } from './endpoint-charts.js'
import { formatDate } from './format.js'
import { errorNotice } from './notice.js'
import { measureRates } from './rates.js'

/** All that is known of one endpoint, requested again with each `refresh`. */
export function endpointDetails(row) {
  const { id, device, opened_at: openedAt } = row
  const problem = element('div', {})
  const list = element('ul', { class: 'endpoints', 'aria-label': `Endpoint ${row.url}` })
  const opened = element(
    'p',
    { class: 'hint' },
    device ? `Device ${device.name}. Open since ${formatDate(openedAt)}.` : cloudText(openedAt),
  )
  const node = element('div', {}, problem, list, opened)
  const kept = new Map()
  const rates = measureRates()
  let isClosed = false
  void refresh()
  return { node, refresh, update: () => true, close: () => (isClosed = true) }

  async function refresh() {
    try {
      const endpoint = await (device ? ofDevice() : ask('GET', `api/endpoints/${id}`, BACKGROUND))
      if (isClosed) return
      fill(problem)
      show(endpoint ? [endpoint] : [])
    } catch (error) {
      if (!isClosed && problem.textContent !== error.message) fill(problem, errorNotice(error))
    }
  }

  async function ofDevice() {
    const { endpoints } = await ask('GET', `api/device_details/${device.id}`, BACKGROUND)
    return endpoints.find((it) => it.id === id)
  }

  function show(endpoints) {
    const [measured] = rates.measure([{ endpoints }])
    keepChildren(list, measured.endpoints.map(versionOf), kept, endpointWithCharts)
  }
}

const BACKGROUND = { isBackground: true }

const cloudText = (openedAt) =>
  `Cloud endpoint: always online. Its policy answers requests or forwards them. Created ${formatDate(openedAt)}.`

/** An endpoint whose fixed parts changed is another child. */
export const versionOf = (endpoint) => ({
  ...endpoint,
  id: [
    ...[endpoint.id, endpoint.url, endpoint.upstream_url, endpoint.description],
    ...[endpoint.traffic_policy, endpoint.overlap?.msg, endpoint.policy_problem?.msg],
    endpoint.warning?.msg,
  ].join(' '),
})
