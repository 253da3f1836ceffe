import { ask } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatCount, formatDate, formatNumber } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { shareBar } from '../share-bar.js'
import { listView } from './list-view.js'

/** Bot users: who owns the authtokens of devices. Keys of one of them only see it. */
export function botUsersView({ session }) {
  const mayChange = !session.owner_only
  return listView({
    title: 'Bot users',
    intro: 'Accounts for devices and programs. Each authtoken can belong to one.',
    path: 'bot_users',
    collection: 'bot_users',
    createLabel: 'Create a bot user',
    create: mayChange ? create : undefined,
    empty: {
      title: 'No bot users',
      text: 'Create a bot user for each site or device. Deactivating it takes all its devices offline at once.',
    },
    nameOf: ({ name }) => name,
    stateOf,
    cellsOf: (botUser) => [
      highestText(botUser),
      formatCount(botUser.usage.credentials, 'authtoken'),
    ],
    search: { placeholder: 'name, id', fields: ['name', 'id'] },
    orders: {
      usage: {
        label: 'Quota use',
        compare: (a, b) => highestOf(b).share - highestOf(a).share,
      },
    },
    details: (botUser, { reload }) => ({ node: botUserDetails(botUser, mayChange && reload) }),
  })
}

async function create() {
  const botUser = await openForm({
    title: 'Create a bot user',
    fields: [
      textField({
        name: 'name',
        label: 'Name',
        hint: 'For example the name of the site or device.',
      }),
    ],
    action: 'Create',
    run: ({ name }) => ask('POST', 'api/bot_users', { body: { name: name.trim() } }),
  })
  if (botUser) say(`${botUser.name} was created.`)
  return botUser
}

function stateOf({ active, warning }) {
  if (!active) return { text: 'Inactive', tone: 'wait' }
  return warning ? { text: 'Over quota', tone: 'bad' } : { text: 'Active', tone: 'good' }
}

function botUserDetails(botUser, reload) {
  const { id, name, active, warning, created_at } = botUser
  const actions = reload
    ? [
        active
          ? actionButton('Deactivate', name, () => deactivate(botUser, reload))
          : actionButton('Activate', name, () => activate(botUser, reload)),
        actionButton('Quotas', name, () => changeQuotas(botUser, reload)),
        actionButton('Delete', name, () => remove(botUser, reload), true),
      ]
    : []
  return itemDetails(
    actions,
    facts(['Name', name], ['Id', element('code', {}, id)], ['Created', formatDate(created_at)]),
    warning && element('p', { class: 'hint' }, `Warning: ${warning.msg}`),
    element(
      'dl',
      { class: 'quotas' },
      usesOf(botUser).map(({ label, text, share }) =>
        element(
          'div',
          { class: share > 1 ? 'is-over' : '' },
          element('dt', {}, label),
          element('dd', {}, text, shareBar(Math.min(1, share))),
        ),
      ),
    ),
  )
}

/** Use of each quota, in the order of `QUOTAS`. */
function usesOf({ usage, quotas }) {
  return QUOTAS.map(([key, label]) => ({
    label,
    text: `${formatNumber(usage[key])} of ${formatNumber(quotas[key])}`,
    share: usage[key] === 0 ? 0 : usage[key] / quotas[key],
  }))
}

const highestOf = (botUser) => usesOf(botUser).reduce((a, b) => (b.share > a.share ? b : a))

function highestText(botUser) {
  const { label, text, share } = highestOf(botUser)
  return share === 0 ? 'nothing used' : `${label}: ${text}`
}

const QUOTAS = [
  ['domains', 'Domains'],
  ['credentials', 'Authtokens'],
  ['keys', 'API keys'],
  ['cloud_endpoints', 'Cloud endpoints'],
  ['online_endpoints', 'Online endpoints'],
  ['policy_bytes', 'Policy bytes'],
  ['webhooks', 'Webhooks'],
  ['notification_channels', 'Notification channels'],
]

async function changeQuotas({ id, name, quotas }, reload) {
  const changed = await openForm({
    title: `Quotas of ${name}`,
    fields: QUOTAS.map(([key, label]) =>
      textField({ name: key, label, value: String(quotas[key]), hint: 'Empty: the default.' }),
    ),
    action: 'Save',
    run: (values) =>
      ask('PATCH', `api/bot_users/${id}`, {
        body: {
          quotas: Object.fromEntries(
            QUOTAS.map(([key]) => [key, values[key].trim()])
              .filter(([key, value]) => value !== String(quotas[key]))
              .map(([key, value]) => [key, quotaOf(value)]),
          ),
        },
      }),
  })
  if (!changed) return
  say(`The quotas of ${name} are changed.`)
  await reload()
}

/** Null is the default; the API refuses what is no number. */
function quotaOf(value) {
  if (value === '') return null
  return /^\d+$/.test(value) ? Number(value) : value
}

const deactivate = (botUser, reload) =>
  change(botUser, reload, {
    title: `Deactivate ${botUser.name}?`,
    text: 'Its devices are disconnected at once. Its authtokens and API keys are refused until you activate it again. Its cloud endpoints stay online.',
    action: 'Deactivate',
    method: 'PATCH',
    body: { active: false },
    said: `${botUser.name} was deactivated.`,
  })

const activate = (botUser, reload) =>
  change(botUser, reload, {
    title: `Activate ${botUser.name}?`,
    text: 'Its authtokens and API keys are valid again, and its devices reconnect automatically.',
    action: 'Activate',
    isDangerous: false,
    method: 'PATCH',
    body: { active: true },
    said: `${botUser.name} was activated.`,
  })

const remove = (botUser, reload) =>
  change(botUser, reload, {
    title: `Delete ${botUser.name}?`,
    text: 'All its authtokens and API keys are deleted too, and its devices are disconnected. This cannot be undone.',
    action: 'Delete bot user',
    method: 'DELETE',
    said: `${botUser.name} was deleted.`,
  })

async function change({ id }, reload, question) {
  if (await confirm({ ...question, path: `api/bot_users/${id}` })) await reload()
}
