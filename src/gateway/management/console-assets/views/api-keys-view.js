import { ask, askAll } from '../api.js'
import { actionButton, badge, cardHead, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate, formatDistance } from '../format.js'
import { OwnerNames } from '../owner-names.js'
import { showOnce } from '../shown-once.js'
import { listView } from './list-view.js'

/** What a key of a bot user is good for; the values of a select field are texts. */
const OWNER_ONLY = 'owner'

/** API keys: with what programs and people get in here. */
export function apiKeysView({ session }) {
  const owners = new OwnerNames()
  return listView({
    title: 'API keys',
    intro: 'They open this console, and the management API to programs.',
    path: 'api_keys',
    collection: 'keys',
    createLabel: 'Create an API key',
    create,
    empty: { title: 'There is no API key', text: 'Create one for each person and each program.' },
    prepare: (items) => owners.learn(items),
    row: (key, reload) => apiKeyCard(key, { isOwn: key.id === session.id, owners }, reload),
  })
}

async function create() {
  const botUsers = await askAll('bot_users', 'bot_users')
  const reach = selectField({
    name: 'reach',
    label: 'Good for',
    hint: 'With the first one it sees and changes only what belongs to the owner.',
    options: [
      [OWNER_ONLY, 'What belongs to the owner'],
      ['all', 'Everything on this gateway'],
    ],
  })
  reach.hidden = true
  const key = await openForm({
    title: 'Create an API key',
    fields: [
      textField({ name: 'name', label: 'Name', hint: 'Who or what is going to use it.' }),
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
        hint: 'It opens nothing from then on; may stay empty.',
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
    text: 'Whoever has it may do what it may. It is shown this once and kept nowhere.',
    token: key.token,
    what: 'the API key',
  })
  return key
}

function apiKeyCard(key, { isOwn, owners }, reload) {
  const { id, name, description, scope, owner_id, owner_only, created_at } = key
  const { expires_at, last_used_at } = key
  const hasEnded = expires_at !== null && Date.parse(expires_at) <= Date.now()
  const owner = owner_id ? owners.of(owner_id) : 'Nobody'
  return element(
    'article',
    {},
    cardHead(name, {
      badge: isOwn ? badge('You use this one', 'good') : hasEnded && badge('Has ended', 'bad'),
      actions: [actionButton('Delete', name, () => remove({ id, name, isOwn }, reload), true)],
    }),
    facts(
      ['Description', description === name ? '' : description],
      ['May', scope === 'read' ? 'read only' : 'read and change'],
      ['Owner', owner_only ? `${owner}, and good for what belongs to it alone` : owner],
      ['Ends', expires_at ? formatDate(expires_at) : 'Never'],
      ['Last used', last_used_at ? formatDistance(last_used_at) : 'Never'],
      ['Id', element('code', {}, id)],
      ['Created', formatDate(created_at)],
    ),
  )
}

async function remove({ id, name, isOwn }, reload) {
  const isDone = await confirm({
    title: `Delete ${name}?`,
    text: isOwn
      ? 'You are signed in with this key: deleting it signs you out, for good if it is your only one.'
      : 'Programs that use it are refused from now on, and whoever is signed in with it is signed out.',
    action: 'Delete API key',
    method: 'DELETE',
    path: `api/api_keys/${id}`,
    said: 'The API key is deleted.',
  })
  if (isDone) await reload()
}
