import { ask } from '../api.js'
import { badge, cardHead, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { showOnce } from '../shown-once.js'
import { actionButton, listView } from './list-view.js'

/** API keys: with what programs and people get in here. */
export function apiKeysView({ apiKey }) {
  return listView({
    title: 'API keys',
    intro: 'They open this console, and the management API to programs.',
    path: 'api_keys',
    collection: 'keys',
    createLabel: 'Create an API key',
    create,
    empty: { title: 'There is no API key', text: 'Create one for each person and each program.' },
    row: (key, reload) => apiKeyCard(key, key.id === apiKey.id, reload),
  })
}

async function create() {
  const key = await openForm({
    title: 'Create an API key',
    fields: [
      textField({
        name: 'description',
        label: 'Description',
        hint: 'Who or what is going to use it.',
      }),
    ],
    action: 'Create',
    run: ({ description }) => ask('POST', 'api/api_keys', { body: { description } }),
  })
  if (!key) return undefined
  await showOnce({
    title: 'Your new API key',
    text: 'It opens everything here. It is shown this once and kept nowhere.',
    token: key.token,
    what: 'the API key',
  })
  return key
}

function apiKeyCard({ id, description, created_at }, isOwn, reload) {
  const name = description || id
  return element(
    'article',
    {},
    cardHead(name, {
      badge: isOwn && badge('You use this one', 'good'),
      actions: [actionButton('Delete', name, () => remove({ id, name, isOwn }, reload), true)],
    }),
    facts(['Id', element('code', {}, id)], ['Created', formatDate(created_at)]),
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
