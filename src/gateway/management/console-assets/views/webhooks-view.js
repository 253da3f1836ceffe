import { ask } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { choiceOf, receiverActions, receiverState } from '../event-receiver.js'
import { formatDate, formatDistance, formatNumber } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { showOnce } from '../shown-once.js'
import { listView } from './list-view.js'

const TROUBLE = [
  'device.offline',
  'device.refused',
  'device.duplicate',
  'certificate.failed',
  'certificate.expiring',
  'storage.healed',
]
const PRESENCE = ['device.online', 'device.offline']
/** What somebody chooses from, with the types that it stands for. */
const CHOICES = [
  { key: '', label: 'Everything', types: [] },
  { key: 'presence', label: 'Devices online and offline', types: PRESENCE },
  { key: 'trouble', label: 'Only problems', types: TROUBLE },
]

const DAY_S = 86_400
/** For how long the old secret signs, too. */
const OVERLAPS = [
  { seconds: DAY_S, label: 'One day' },
  { seconds: 7 * DAY_S, label: 'One week' },
  { seconds: 0, label: 'End now, because the secret is compromised' },
]

/** Webhooks: where this gateway tells by itself what happens. */
export function webhooksView() {
  return listView({
    title: 'Webhooks',
    intro: 'Notifications to other systems when a device goes offline or a problem occurs.',
    path: 'webhook_endpoints',
    collection: 'webhook_endpoints',
    createLabel: 'Create a webhook',
    create,
    empty: {
      title: 'No webhooks',
      text: 'Create a webhook to notify your pager, chat or fleet software within 30 seconds when a device goes offline.',
    },
    nameOf: ({ url }) => url,
    stateOf: receiverState,
    cellsOf: ({ behind, event_types: types, last_delivered_at: at }) => [
      behind > 0 ? `${formatNumber(behind)} waiting` : deliveredText(at),
      labelOf(types),
    ],
    search: {
      placeholder: 'URL, event, …',
      fields: ['url', 'description'],
      texts: ({ description, event_types: types }) => [description, labelOf(types), ...types],
    },
    details: (webhook, after) => ({ node: webhookDetails(webhook, after) }),
  })
}

async function create() {
  const webhook = await openForm({
    title: 'Create a webhook',
    fields: [
      textField({
        name: 'url',
        label: 'URL',
        type: 'url',
        placeholder: 'https://example.com/hook',
        hint: 'The host must be listed in GATEWAY_OUTBOUND_ALLOW.',
      }),
      selectField({
        name: 'choice',
        label: 'Events',
        options: CHOICES.map(({ key, label }) => [key, label]),
      }),
      textField({
        name: 'description',
        label: 'Description',
        hint: 'Optional note.',
      }),
    ],
    action: 'Create',
    run: ({ url, choice, description }) =>
      ask('POST', 'api/webhook_endpoints', {
        body: { url: url.trim(), description, event_types: typesOf(choice) },
      }),
  })
  if (!webhook) return undefined
  await showOnce({
    title: 'Secret of your new webhook',
    text: 'The receiver verifies signatures with it, using a Standard Webhooks library. Copy it now. It is not shown again.',
    token: webhook.secret,
    what: 'the secret',
  })
  return webhook
}

const deliveredText = (at) => (at ? `delivered ${formatDistance(at)}` : 'nothing delivered')

function webhookDetails(webhook, { reload, replace }) {
  const { id, url, description, active, event_types: types, created_at: createdAt } = webhook
  const { testButton, toggleButton, outcome } = receiverActions({
    ...{ path: `webhook_endpoints/${id}`, name: url, active, replace },
    sentText: () => 'The test message was delivered.',
  })
  return itemDetails(
    [
      testButton,
      actionButton('Send again', url, () => replayTo(webhook)),
      actionButton('New secret', url, () => rotate(webhook, reload)),
      toggleButton,
      actionButton('Delete', url, () => remove(webhook, reload), true),
    ],
    facts(
      ['URL', url],
      ['Description', description],
      ['Gets', labelOf(types)],
      ['Last delivered', webhook.last_delivered_at && formatDistance(webhook.last_delivered_at)],
      ['Waiting', countOf(webhook.behind)],
      ['Lost', countOf(webhook.missed)],
      [
        'Old secret',
        webhook.overlap_ends_at && `also signs until ${formatDate(webhook.overlap_ends_at)}`,
      ],
      ['Problem', webhook.problem],
      ['Next try', webhook.next_try_at && formatDate(webhook.next_try_at)],
      ['Created', formatDate(createdAt)],
      ['Id', element('code', {}, id)],
    ),
    outcome,
  )
}

/** Undefined when there is nothing to say. */
const countOf = (number) => (number > 0 ? formatNumber(number) : undefined)

const typesOf = (choice) => CHOICES.find(({ key }) => key === choice)?.types ?? []

const labelOf = (types) => choiceOf(CHOICES, types)?.label ?? types.join(', ')

async function replayTo({ id, url }) {
  const isDone = await openForm({
    title: `Send again to ${url}`,
    text: 'Sends all its events again from a given time, with the same ids.',
    fields: [textField({ name: 'since', label: 'Since', type: 'datetime-local' })],
    action: 'Send again',
    run: async ({ since }) => {
      const moment = new Date(since)
      await ask('POST', `api/webhook_endpoints/${id}/replay`, {
        body: { since: Number.isNaN(moment.getTime()) ? since : moment.toISOString() },
      })
      return true
    },
  })
  if (isDone) say('The events are being sent again.')
}

async function rotate({ id, url }, reload) {
  const rotated = await openForm({
    title: `New secret for ${url}`,
    text: 'Messages are signed with both secrets during the overlap, so that the receiver can switch.',
    fields: [
      selectField({
        name: 'overlap',
        label: 'Keep the old secret valid for',
        options: OVERLAPS.map(({ seconds, label }) => [String(seconds), label]),
      }),
    ],
    action: 'Create a new secret',
    run: ({ overlap }) =>
      ask('POST', `api/webhook_endpoints/${id}/rotate`, { body: { overlap_s: Number(overlap) } }),
  })
  if (!rotated) return
  await showOnce({
    title: 'New secret of your webhook',
    text: 'Copy it now to the receiver. It is not shown again.',
    token: rotated.secret,
    what: 'the secret',
  })
  await reload()
}

async function remove({ id, url }, reload) {
  const isDone = await confirm({
    title: `Delete the webhook to ${url}?`,
    text: 'No more events are sent to it. Waiting events are dropped.',
    action: 'Delete webhook',
    method: 'DELETE',
    path: `api/webhook_endpoints/${id}`,
    said: 'The webhook was deleted.',
  })
  if (isDone) await reload()
}
