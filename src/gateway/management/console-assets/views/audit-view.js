import { auditSentence, NOUNS } from '../audit-sentence.js'
import { facts } from '../card.js'
import { textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { itemDetails } from '../item-details.js'
import { quoted } from '../server-filter.js'
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
  ['obj.result == "ok"', 'Done'],
  ['obj.result != "ok"', 'Refused or unknown'],
]

/** The audit trail: changes, their authors and results. */
export function auditView() {
  return listView({
    title: 'Audit',
    nouns: 'audit entries',
    intro: 'Changes on this gateway and their authors, newest first. This list cannot be edited.',
    path: 'audit',
    collection: 'entries',
    className: 'items-sentences',
    empty: { title: 'No entries', text: 'No change was made yet.' },
    nameOf: auditSentence,
    stateOf,
    cellsOf: ({ created_at }) => [formatDate(created_at)],
    search: {
      placeholder: 'who, name, id',
      fields: ['who.name', 'who.id', 'action', 'target.name', 'target.id', 'client', 'result'],
    },
    onServer: {
      selections: [
        { name: 'object', label: 'Object', options: objectOptions() },
        { name: 'result', label: 'Result', options: RESULTS },
      ],
      fields: [
        textField({ name: 'since', label: 'Since', type: 'date' }),
        textField({ name: 'until', label: 'Until', type: 'date' }),
      ],
      filterOf: ({ object, result, since, until }) => [
        object && `obj.action.startsWith(${quoted(`${object}.`)})`,
        result,
        since && `obj.created_at >= timestamp(${quoted(momentOf(since))})`,
        until && `obj.created_at < timestamp(${quoted(momentOf(until, 1))})`,
      ],
    },
    details: (entry) => ({ node: entryDetails(entry) }),
  })
}

function objectOptions() {
  const options = Object.entries(NOUNS).map(([key, noun]) => [
    key,
    noun.charAt(0).toUpperCase() + noun.slice(1),
  ])
  return [['', 'All'], ...options.sort(([, a], [, b]) => a.localeCompare(b))]
}

/** A day begins at midnight of the reader. */
function momentOf(day, daysLater = 0) {
  const midnight = new Date(`${day}T00:00`)
  midnight.setDate(midnight.getDate() + daysLater)
  return midnight.toISOString()
}

function stateOf({ result }) {
  if (result === 'ok') return { text: 'Done', tone: 'good' }
  return result === 'unknown' ? { text: 'Unknown', tone: 'wait' } : { text: 'Refused', tone: 'bad' }
}

function entryDetails({ created_at, who, client, action, target, changes, result, request_id }) {
  return itemDetails(
    [],
    facts(
      ['Who', `${who.name} (${KINDS[who.kind]})`],
      ['From', client],
      ['When', formatDate(created_at)],
      ['Action', element('code', {}, action)],
      ['Object', target.name],
      ['Object id', target.id && element('code', {}, target.id)],
      ['Result', result === 'ok' ? 'done' : result],
      ['Request id', request_id && element('code', {}, request_id)],
    ),
    changes && Object.keys(changes).length > 0 && changeList(changes),
  )
}

function changeList(changes) {
  return [
    element('p', { class: 'hint changes-hint' }, 'Changes'),
    facts(...Object.entries(changes).map(([field, change]) => [field, changeText(change)])),
  ]
}

function changeText(change) {
  if (change === 'changed') return 'changed'
  const [before, after] = change
  return before === null ? shown(after) : `${shown(before)} → ${shown(after)}`
}

function shown(value) {
  if (value === null) return 'nothing'
  if (Array.isArray(value) && value.every((part) => typeof part === 'string')) {
    return value.length === 0 ? 'none' : value.join(', ')
  }
  return typeof value === 'string' ? value : JSON.stringify(value)
}
