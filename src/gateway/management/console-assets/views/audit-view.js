import { badge, cardHead, facts } from '../card.js'
import { selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { listView } from './list-view.js'

const KINDS = {
  token: 'token',
  'api-key': 'API key',
  console: 'API key, in this console',
  'command-line': 'command line',
}
const RESULTS = [
  ['', 'All'],
  ['obj.result == "ok"', 'Changed'],
  ['obj.result != "ok"', 'Refused or unknown'],
]
const DAY = /^\d{4}-\d\d-\d\d$/

/** The audit trail: who changed what, from where, and what became of it. */
export function auditView() {
  return listView({
    title: 'Audit',
    intro: 'Who changed what on this gateway, the newest first. Nobody can change this list.',
    path: 'audit',
    collection: 'entries',
    empty: { title: 'There is nothing to show', text: 'No change fits, or nobody made any yet.' },
    row: entryCard,
    choice,
  })
}

/** The form above the list. What is typed counts once it is sent. */
function choice(reload) {
  const form = element(
    'form',
    { class: 'choice', onsubmit: send, 'aria-label': 'What to show' },
    textField({ name: 'who', label: 'Who' }),
    textField({ name: 'action', label: 'Action', placeholder: 'api_key.create' }),
    textField({ name: 'since', label: 'Since', placeholder: '2030-01-31' }),
    textField({ name: 'until', label: 'Until', placeholder: '2030-01-31' }),
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

/** A day begins at midnight of the reader; what is no day is left for the gateway to judge. */
function momentOf(text, daysLater = 0) {
  const day = text.trim()
  if (!DAY.test(day)) return day
  const midnight = new Date(`${day}T00:00`)
  midnight.setDate(midnight.getDate() + daysLater)
  return Number.isNaN(midnight.getTime()) ? day : midnight.toISOString()
}

function entryCard({ created_at, who, client, action, target, changes, result }) {
  return element(
    'article',
    {},
    cardHead(action, { badge: badge(result === 'ok' ? 'Done' : result, toneOf(result)) }),
    facts(
      ['When', formatDate(created_at)],
      ['Who', `${who.name} (${KINDS[who.kind]})`],
      ['From', client],
      ['What', target.name ?? target.id],
      ['Id', target.name && target.id && element('code', {}, target.id)],
      ['Changes', changes && changeList(changes)],
    ),
  )
}

function toneOf(result) {
  if (result === 'ok') return 'good'
  return result === 'unknown' ? 'wait' : 'bad'
}

function changeList(changes) {
  const lines = Object.entries(changes).map(([field, change]) =>
    change === 'changed' ? `${field} changed` : `${field}: ${change.map(shown).join(' → ')}`,
  )
  return lines.length === 0 ? undefined : lines.join('; ')
}

function shown(value) {
  if (value === null) return 'nothing'
  return typeof value === 'string' ? value : JSON.stringify(value)
}
