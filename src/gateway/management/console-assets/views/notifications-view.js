import { ask } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { choiceOf, receiverActions, receiverState } from '../event-receiver.js'
import { formatDate, formatDistance } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { listView } from './list-view.js'

const KINDS = [
  ['email', 'Mail'],
  ['slack', 'Slack'],
  ['discord', 'Discord'],
  ['teams', 'Microsoft Teams'],
  ['mattermost', 'Mattermost'],
  ['ntfy', 'ntfy'],
  ['telegram', 'Telegram'],
  ['webhook', 'Other, as JSON'],
]
const PRESENCE = ['device.offline', 'device.online']
const TROUBLE = ['device.refused', 'certificate.expiring', 'gateway.degraded', 'gateway.recovered']
/** Event types that people choose from. */
const CHOICES = [
  { key: 'problems', label: 'Problems and their end', types: [...PRESENCE, ...TROUBLE] },
  { key: 'presence', label: 'Devices offline and back', types: PRESENCE },
  { key: '', label: 'Everything', types: [] },
]

/** Notifications: mails and chat messages for people. */
export function notificationsView() {
  return listView({
    title: 'Notifications',
    nouns: 'channels',
    intro: 'Mails and chat messages when a device is offline or a problem occurs.',
    path: 'notification_channels',
    collection: 'notification_channels',
    createLabel: 'Create a channel',
    create,
    empty: {
      title: 'No notification channels',
      text: 'Create a channel to get a mail or a chat message when a device is offline.',
    },
    nameOf: ({ name }) => name,
    stateOf: receiverState,
    cellsOf: ({ kind, last_sent_at: at }) => [
      at ? `sent ${formatDistance(at)}` : 'nothing sent',
      labelOfKind(kind),
    ],
    search: {
      placeholder: 'name, kind, tag, …',
      fields: ['name', 'kind', 'url'],
      texts: ({ kind, url, addresses, tags }) => [labelOfKind(kind), url, ...addresses, ...tags],
    },
    details: (channel, after) => ({ node: channelDetails(channel, after) }),
  })
}

function create() {
  return openForm({
    title: 'Create a channel',
    fields: [
      selectField({ name: 'kind', label: 'Kind', options: KINDS }),
      ...fieldsOf({
        name: '',
        event_types: CHOICES[0]?.types ?? [],
        tags: [],
        offline_s: 120,
        quiet_times: null,
        time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      }),
    ],
    action: 'Create',
    run: (values) =>
      ask('POST', 'api/notification_channels', {
        body: { kind: values.kind, ...targetOf(values.kind, values), ...settingsOf(values) },
      }),
  })
}

async function change(channel, replace) {
  const { id, name, kind } = channel
  const changed = await openForm({
    title: `Change ${name}`,
    fields: fieldsOf(channel),
    action: 'Save',
    run: (values) =>
      ask('PATCH', `api/notification_channels/${id}`, {
        body: { ...targetOf(kind, values), ...settingsOf(values) },
      }),
  })
  if (!changed) return
  say('The channel was saved.')
  replace(changed)
}

/** `channel`: a new one has no id. */
function fieldsOf(channel) {
  const { id, name, addresses = [], event_types: types, tags } = channel
  const { offline_s: offlineS, quiet_times: quiet, time_zone: timeZone } = channel
  const kept = id && addresses.length === 0 ? ' Empty: the present URL stays.' : ''
  const choice = choiceOf(CHOICES, types)
  return [
    textField({ name: 'name', label: 'Name', value: name, placeholder: 'Night shift' }),
    textField({
      name: 'target',
      label: 'Addresses or URL',
      value: addresses.join(', '),
      placeholder: 'ops@example.com',
      hint: `Mail: addresses, separated by commas. Chat: URL of its webhook, with the host listed in GATEWAY_OUTBOUND_ALLOW.${kept}`,
    }),
    selectField({
      name: 'choice',
      label: 'Events',
      value: choice?.key ?? 'own',
      options: [
        ...(choice ? [] : [['own', types.join(', ')]]),
        ...CHOICES.map(({ key, label }) => [key, label]),
      ],
    }),
    textField({
      name: 'tags',
      label: 'Tags',
      value: tags.join(', '),
      hint: 'Only devices with one of these tags. Empty: all devices.',
    }),
    textField({
      name: 'offline',
      label: 'Minimum outage in seconds',
      type: 'number',
      value: String(offlineS),
    }),
    textField({
      name: 'from',
      label: 'Quiet from',
      type: 'time',
      value: quiet?.from ?? '',
      hint: 'Messages wait, and one message sums them up at the end. Empty: no quiet times.',
    }),
    textField({ name: 'to', label: 'Quiet until', type: 'time', value: quiet?.to ?? '' }),
    textField({ name: 'zone', label: 'Time zone', value: timeZone, placeholder: 'Europe/Berlin' }),
  ]
}

const partsOf = (text) =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

function targetOf(kind, { target }) {
  const text = target.trim()
  if (kind === 'email') return { addresses: partsOf(text) }
  return text === '' ? {} : { url: text }
}

function settingsOf({ name, choice, tags, offline, from, to, zone }) {
  const chosen = CHOICES.find(({ key }) => key === choice)
  return {
    name: name.trim(),
    ...(chosen && { event_types: chosen.types }),
    tags: partsOf(tags),
    offline_s: Number(offline),
    quiet_times: from || to ? { from, to } : null,
    time_zone: zone.trim(),
  }
}

function channelDetails(channel, { reload, replace }) {
  const { id, name, kind, addresses, url, tags, active, problem: fault } = channel
  const { quiet_times: quiet, time_zone: timeZone, last_sent_at: sentAt } = channel
  const { testButton, toggleButton, outcome } = receiverActions({
    ...{ path: `notification_channels/${id}`, name, active, replace },
    sentText: (text) => `Test message sent. ${text}`,
  })
  return itemDetails(
    [
      testButton,
      actionButton('Change', name, () => change(channel, replace)),
      toggleButton,
      actionButton('Delete', name, () => remove(channel, reload), true),
    ],
    facts(
      ['Kind', labelOfKind(kind)],
      ['To', url ?? addresses.join(', ')],
      ['Events', choiceOf(CHOICES, channel.event_types)?.label ?? channel.event_types.join(', ')],
      ['Tags', tags.join(', ') || undefined],
      ['Minimum outage', `${channel.offline_s} s`],
      ['Quiet times', quiet && `${quiet.from} to ${quiet.to} (${timeZone})`],
      ['Last sent', sentAt && formatDistance(sentAt)],
      ['Problem', fault],
      ['Failed attempts', channel.failures || undefined],
      ['Next try', channel.next_try_at && formatDate(channel.next_try_at)],
      ['Created', formatDate(channel.created_at)],
      ['Id', element('code', {}, id)],
    ),
    outcome,
  )
}

const labelOfKind = (kind) => KINDS.find(([key]) => key === kind)?.[1] ?? kind

async function remove({ id, name }, reload) {
  const isDone = await confirm({
    title: `Delete the channel ${name}?`,
    text: 'No more messages are sent to it. Waiting messages are dropped.',
    action: 'Delete channel',
    method: 'DELETE',
    path: `api/notification_channels/${id}`,
    said: 'The channel was deleted.',
  })
  if (isDone) await reload()
}
