import { badge } from '../card.js'
import { selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { listView } from './list-view.js'

const KINDS = {
  token: 'token',
  'api-key': 'API key',
  console: 'API key, in this console',
  'command-line': 'command line',
  invite: 'invitation',
}
const RESULTS = [
  ['', 'All'],
  ['obj.result == "ok"', 'Changed'],
  ['obj.result != "ok"', 'Refused or unknown'],
]

/** The audit trail: who changed what, from where, and what became of it. */
export function auditView() {
  return listView({
    title: 'Audit',
    intro: 'Changes on this gateway and their authors, newest first. This list cannot be edited.',
    path: 'audit',
    collection: 'entries',
    empty: {
      title: 'No entries',
      text: 'No change matches the filter, or no change was made yet.',
    },
    row: entryLine,
    isDense: true,
    choice,
  })
}

/** The form above the list. What is typed counts once it is sent. */
function choice(reload) {
  const form = element(
    'form',
    { class: 'choice', onsubmit: send, 'aria-label': 'Filter' },
    textField({ name: 'who', label: 'Who' }),
    textField({ name: 'action', label: 'Action', placeholder: 'api_key.create' }),
    textField({ name: 'since', label: 'Since', type: 'date' }),
    textField({ name: 'until', label: 'Until', type: 'date' }),
    selectField({ name: 'result', label: 'Result', options: RESULTS }),
    element('button', { type: 'submit', class: 'button' }, 'Show'),
  )
  return { node: form, filter }

  function send(event) {
    event.preventDefault()
    void reload()
  }

  function filter() {
    const { who, action, since, until, result } = Object.fromEntries(new FormData(form))
    const conditions = [
      who && `(obj.who.name.contains(${quoted(who)}) || obj.who.id == ${quoted(who)})`,
      action && `obj.action.contains(${quoted(action)})`,
      since && `obj.created_at >= timestamp(${quoted(momentOf(since))})`,
      until && `obj.created_at < timestamp(${quoted(momentOf(until, 1))})`,
      result,
    ]
    return conditions.filter((condition) => condition).join(' && ')
  }
}

const quoted = (text) => JSON.stringify(text.trim())

/** A day begins at midnight of the reader. */
function momentOf(day, daysLater = 0) {
  const midnight = new Date(`${day}T00:00`)
  midnight.setDate(midnight.getDate() + daysLater)
  return midnight.toISOString()
}

/** What was done to what, and when; then who did it, and what is different since. */
function entryLine({ created_at, who, client, action, target, changes, result }) {
  const changed = changes && changeList(changes)
  return element(
    'article',
    { class: 'entry' },
    element(
      'div',
      { class: 'entry-head' },
      element('h2', { tabindex: '-1' }, action),
      (target.name ?? target.id) &&
        element('span', { class: 'entry-target' }, target.name ?? target.id),
      result !== 'ok' && badge(result, result === 'unknown' ? 'wait' : 'bad'),
    ),
    element('time', { datetime: created_at, class: 'entry-time' }, formatDate(created_at)),
    element(
      'p',
      { class: 'entry-by' },
      element('span', {}, `${who.name} (${KINDS[who.kind]})`),
      client && ` from ${client}`,
      target.name && target.id && [', ', element('code', {}, target.id)],
    ),
    changed && element('p', { class: 'entry-changes' }, changed),
  )
}

function changeList(changes) {
  const lines = Object.entries(changes).map(([field, change]) => {
    if (change === 'changed') return `${field} changed`
    const [before, after] = change
    return before === null
      ? `${field}: ${shown(after)}`
      : `${field}: ${shown(before)} → ${shown(after)}`
  })
  return lines.length === 0 ? undefined : lines.join('; ')
}

function shown(value) {
  if (value === null) return 'nothing'
  if (Array.isArray(value) && value.every((part) => typeof part === 'string')) {
    return value.length === 0 ? 'none' : value.join(', ')
  }
  return typeof value === 'string' ? value : JSON.stringify(value)
}
