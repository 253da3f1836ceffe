import { cardHead } from './card.js'
import { element, keepChildren } from './element.js'
import { endpointRow } from './endpoint-row.js'
import { measureRates } from './rates.js'

/** The endpoints that are there without a device, on a card of their own while there are any. */
export function cloudEndpoints() {
  const rows = element('ul', { class: 'endpoints', 'aria-label': 'Cloud endpoints' })
  const more = element(
    'p',
    { class: 'hint' },
    'Older cloud endpoints are not shown. The API lists all.',
  )
  const node = element(
    'section',
    { class: 'card cloud', 'aria-label': 'Cloud endpoints', hidden: true },
    cardHead('Cloud endpoints'),
    element(
      'p',
      { class: 'hint' },
      'Always online. Their policies answer requests or forward them to devices.',
    ),
    rows,
    more,
  )
  const kept = new Map()
  const rates = measureRates()
  return { node, show }

  /** Shows a page of them, newest first. */
  function show({ items, next }) {
    const [{ endpoints }] = rates.measure([{ endpoints: items }])
    // One that was changed is another row; the others stay as they are.
    const versions = endpoints.map(({ id, ...it }) => ({
      ...it,
      id: [
        ...[id, it.url, it.description, it.traffic_policy],
        ...[it.overlap?.msg, it.policy_problem?.msg, it.warning?.msg],
      ].join(' '),
    }))
    keepChildren(rows, versions, kept, endpointRow)
    node.hidden = items.length === 0
    more.hidden = next === undefined
  }
}
