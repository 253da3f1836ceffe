import { ask, askAll } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate, formatDistance } from '../format.js'
import { itemDetails } from '../item-details.js'
import { OwnerNames } from '../owner-names.js'
import { showOnce } from '../shown-once.js'
import { listView } from './list-view.js'

/** What a key of a bot user is good for; the values of a select field are texts. */
const OWNER_ONLY = 'owner'
const SCOPES = { read: 'read only', write: 'read and change' }

/** API keys: with what programs and people get in here. */
export function apiKeysView({ session }) {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  const isOwn = ({ id }) => id === session.id
  return listView({
    title: 'API keys',
    nouns: 'API keys',
    intro: 'Credentials for this console and for the management API.',
    path: 'api_keys',
    collection: 'keys',
    createLabel: 'Create an API key',
    create,
    empty: { title: 'No API keys', text: 'Create an API key for each person and each program.' },
    prepare: (items) => owners.learn(items),
    nameOf: ({ name }) => name,
    stateOf: (key) => stateOf(key, isOwn(key)),
    cellsOf: ({ scope, last_used_at: usedAt }) => [
      SCOPES[scope],
      usedAt ? `used ${formatDistance(usedAt)}` : 'never used',
    ],
    ownerOf,
    search: {
      placeholder: 'name, owner, id',
      fields: ['name', 'description', 'id'],
      texts: ({ description, scope }) => [description, SCOPES[scope]],
    },
    orders: {
      used: {
        label: 'Last used',
        compare: (a, b) => (b.last_used_at ?? '').localeCompare(a.last_used_at ?? ''),
      },
    },
    details: (key, { reload }) => ({
      node: apiKeyDetails(key, { isOwn: isOwn(key), owner: ownerOf(key) }, reload),
    }),
  })
}

async function create() {
  const botUsers = await askAll('bot_users', 'bot_users')
  const reach = selectField({
    name: 'reach',
    label: 'Access',
    hint: 'The first choice limits the key to resources of its owner.',
    options: [
      [OWNER_ONLY, 'Resources of the owner'],
      ['all', 'All resources of this gateway'],
    ],
  })
  reach.hidden = true
  const key = await openForm({
    title: 'Create an API key',
    fields: [
      textField({ name: 'name', label: 'Name', hint: 'Person or program that uses the key.' }),
      selectField({
        name: 'scope',
        label: 'Scope',
        options: [
          ['write', 'Read and change'],
          ['read', 'Read only'],
        ],
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        options: [['', 'No owner'], ...botUsers.map(({ id, name }) => [id, name])],
        onchange: ({ target }) => {
          reach.hidden = target.value === ''
        },
      }),
      reach,
      textField({
        name: 'ends',
        label: 'Ends',
        type: 'datetime-local',
        hint: 'Optional. The key is not valid after this time.',
      }),
    ],
    action: 'Create',
    run: ({ name, scope, owner, reach, ends }) =>
      ask('POST', 'api/api_keys', {
        body: {
          name,
          scope,
          ...(owner && { owner_id: owner, owner_only: reach === OWNER_ONLY }),
          ...(ends && { expires_at: new Date(ends).toISOString() }),
        },
      }),
  })
  if (!key) return undefined
  await showOnce({
    title: 'Your new API key',
    text: 'Copy it now. It is not shown again. Protect it like a password.',
    token: key.token,
    what: 'the API key',
  })
  return key
}

function stateOf({ expires_at: endsAt }, isOwn) {
  if (endsAt !== null && Date.parse(endsAt) <= Date.now()) return { text: 'Expired', tone: 'bad' }
  return { text: isOwn ? 'In use by you' : 'Valid', tone: 'good' }
}

function apiKeyDetails(key, { isOwn, owner = 'Gateway owner' }, reload) {
  const { id, name, description, scope, owner_only, created_at } = key
  const { expires_at, last_used_at } = key
  return itemDetails(
    [actionButton('Delete', name, () => remove({ id, name, isOwn }, reload), true)],
    facts(
      ['Name', name],
      ['Description', description === name ? '' : description],
      ['May', SCOPES[scope]],
      ['Owner', owner_only ? `${owner}, only resources of this owner` : owner],
      ['Ends', expires_at ? formatDate(expires_at) : 'Never'],
      ['Last used', last_used_at ? formatDate(last_used_at) : 'Never'],
      ['Id', element('code', {}, id)],
      ['Created', formatDate(created_at)],
    ),
  )
}

async function remove({ id, name, isOwn }, reload) {
  const isDone = await confirm({
    title: `Delete ${name}?`,
    text: isOwn
      ? 'You are signed in with this key. Deleting it signs you out. Without another key you cannot sign in again.'
      : 'Programs that use this key are refused, and console sessions with it end.',
    action: 'Delete API key',
    method: 'DELETE',
    path: `api/api_keys/${id}`,
    said: 'The API key was deleted.',
  })
  if (isDone) await reload()
}
