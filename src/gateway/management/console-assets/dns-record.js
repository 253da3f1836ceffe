import { badge } from './card.js'
import { copyButton } from './copy-button.js'
import { element, fill } from './element.js'

const FOUND_NOTHING = {
  ENOTFOUND: 'The record does not exist in DNS yet.',
  ENODATA: 'DNS has other records with this name, but no CNAME.',
}
const NOT_CHECKED = {
  ETIMEOUT: 'The DNS server did not answer in time.',
  ECONNREFUSED: 'The DNS server of the gateway is not reachable.',
}

/**
 * The records that a domain needs, in the order in which the check answers. None if the target is below
 * `localhost`, where it leads nowhere.
 */
export function recordsOf(reserved) {
  const { domain, cname_target, acme_challenge_cname_target } = reserved
  if (cname_target.endsWith('.localhost')) return []
  const record = { name: domain, value: cname_target }
  const { authority, challenge } = reserved.certificate_management_policy
  if (authority === 'gateway' || challenge === 'on-demand') return [record]
  const name = `_acme-challenge.${domain.replace(/^\*\./, '')}`
  return [record, { name, value: acme_challenge_cname_target }]
}

/** Summary of a check. */
export function checkSentence({ ok, records }) {
  if (ok) return records.length === 1 ? 'The record is correct.' : 'Both records are correct.'
  const isChecked = records.every(({ error }) => NOT_CHECKED[error] === undefined)
  return isChecked ? 'DNS is not ready yet.' : 'DNS could not be checked.'
}

/** A record as it is to be entered at a DNS provider, and what a check found of it. */
export function recordRow({ name, value }) {
  const state = element('p', { class: 'record-state' })
  const cell = (label, text) =>
    element(
      'div',
      { class: 'record-cell' },
      element('dt', {}, label),
      element(
        'dd',
        {},
        element('code', {}, text),
        copyButton(text, `the ${label.toLowerCase()} ${text}`),
      ),
    )
  const node = element(
    'div',
    { class: 'record' },
    element('dl', {}, [
      element(
        'div',
        { class: 'record-type' },
        element('dt', {}, 'Type'),
        element('dd', {}, 'CNAME'),
      ),
      cell('Name', name),
      cell('Value', value),
    ]),
    state,
  )
  return {
    node,
    show: (record) => fill(state, ...describe(record)),
    forget: () => fill(state),
  }
}

function describe({ ok, found, error }) {
  if (ok) return [badge('Found', 'good')]
  if (found.length > 0) {
    return [badge('Wrong target', 'bad'), ` The record points to ${found.join(', ')}.`]
  }
  const problem = NOT_CHECKED[error]
  if (problem) return [badge('Not checked', 'wait'), ` ${problem}`]
  return [badge('Not found', 'wait'), ` ${FOUND_NOTHING[error] ?? `DNS answered ${error}.`}`]
}
