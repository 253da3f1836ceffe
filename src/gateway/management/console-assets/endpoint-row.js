import { badge } from './card.js'
import { conditionBadge } from './condition.js'
import { element, fill, setText } from './element.js'
import { figures } from './figures.js'
import { formatBytes, formatDistance, formatNumber } from './format.js'

/** Classes of status codes, with their fields in the API. */
const RESPONSES = {
  '2xx': 'status_2xx',
  '3xx': 'status_3xx',
  '4xx': 'status_4xx',
  '5xx': 'status_5xx',
  'No response': 'status_none',
}

/** An endpoint with its figures and its policy; the figures are updated in place. */
export function endpointRow(endpoint) {
  const { url, name, description, upstream_url, traffic_policy, overlap } = endpoint
  const { policy_problem, warning } = endpoint
  // Cloud endpoints have none: no device serves them.
  const state = element('span', {})
  const met = element('span', { class: 'muted' })
  let shownCondition
  const sharedBadge = badge('shared with all accounts')
  const pooledBadge = badge('pooled')
  const fields = figures('figures', ['Requests', 'Errors', 'Over budget', 'In', 'Out', 'Rate'])
  const responses = figures('figures responses', Object.keys(RESPONSES))
  // TCP and TLS have no status codes.
  responses.node.hidden = !url.startsWith('http')
  const node = element(
    'li',
    { class: 'endpoint' },
    element(
      'p',
      { class: 'endpoint-line' },
      linked(url),
      ' ',
      state,
      met,
      name && element('strong', {}, ` ${name}`),
      upstream_url && [
        element('span', { class: 'muted' }, ' forwards to '),
        element('code', {}, upstream_url),
      ],
      ' ',
      sharedBadge,
      pooledBadge,
      description && element('span', { class: 'muted' }, ` ${description}`),
    ),
    overlap && element('p', { class: 'hint' }, `Overlap: ${overlap.msg}`),
    policy_problem &&
      element('p', { class: 'hint' }, `All requests are refused: ${policy_problem.msg}`),
    warning && element('p', { class: 'hint' }, `Warning: ${warning.msg}`),
    fields.node,
    responses.node,
    traffic_policy &&
      element(
        'details',
        {},
        element('summary', {}, 'Traffic policy'),
        element('pre', { tabindex: '0' }, readable(traffic_policy)),
      ),
  )
  return {
    node,
    update: ({ traffic, requestsPerS, shared, pooling_enabled, condition, condition_at }) => {
      if (condition && condition !== shownCondition) fill(state, conditionBadge(condition))
      shownCondition = condition
      // The service may be back since then: only the next visitor tells.
      setText(met, condition_at ? ` for its last visitors, ${formatDistance(condition_at)}` : '')
      sharedBadge.hidden = !shared
      pooledBadge.hidden = !pooling_enabled
      fields.show({
        Requests: formatNumber(traffic.requests),
        Errors: formatNumber(traffic.refused),
        'Over budget': formatNumber(traffic.policy_over_budget),
        In: formatBytes(traffic.bytes_in),
        Out: formatBytes(traffic.bytes_out),
        Rate: `${formatNumber(requestsPerS)}/s`,
      })
      for (const [name, field] of Object.entries(RESPONSES)) {
        // A node of an earlier version does not count them.
        responses.show({ [name]: formatNumber(traffic[field] ?? 0) })
      }
      responses.mark('5xx', traffic.status_5xx > 0)
      fields.mark('Errors', traffic.refused > 0)
      fields.mark('Over budget', traffic.policy_over_budget > 0)
    },
  }
}

/** A browser opens what speaks HTTP alone. */
function linked(url) {
  if (!url.startsWith('http')) return element('code', {}, url)
  return element('a', { href: url, target: '_blank', rel: 'noreferrer' }, url)
}

function readable(policy) {
  try {
    return JSON.stringify(JSON.parse(policy), null, 2)
  } catch {
    return policy
  }
}
