import { ask, askAll } from '../api.js'
import { actionButton, facts } from '../card.js'
import { EXPIRES_FIRST, expiryState } from '../certificate-state.js'
import { confirm } from '../confirm.js'
import { longTextField, openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate, formatDistance } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

/** CAs of client certificates. */
export function clientCasView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Client CAs',
    nouns: 'client CAs',
    intro: 'CAs of client certificates. Policies name them by id in terminate-tls.',
    path: 'certificate_authorities',
    collection: 'certificate_authorities',
    createLabel: 'Add a client CA',
    create: add,
    empty: {
      title: 'No client CAs',
      text: 'Add the CA that signs the certificates of your visitors. Then name its id in a policy.',
    },
    prepare: (items) => owners.learn(items),
    nameOf,
    stateOf: expiryState,
    cellsOf: ({ not_after: end, description }) => [`expires ${formatDistance(end)}`, description],
    ownerOf,
    search: {
      placeholder: 'name, id, …',
      fields: ['subject_common_name', 'description', 'id'],
      texts: ({ description }) => [description],
    },
    orders: { end: EXPIRES_FIRST },
    details: (authority, { reload }) => ({
      node: authorityDetails(authority, ownerOf(authority), reload),
    }),
  })
}

async function add() {
  const botUsers = await askAll('bot_users', 'bot_users')
  const created = await openForm({
    title: 'Add a client CA',
    fields: [
      longTextField({
        name: 'pem',
        label: 'CA certificates (PEM)',
        hint: 'Only certificates, without the private key.',
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        options: [['', 'This gateway'], ...botUsers.map(({ id, name }) => [id, name])],
      }),
      textField({ name: 'description', label: 'Description', hint: 'Optional note.' }),
    ],
    action: 'Add',
    run: ({ pem, owner, description }) =>
      ask('POST', 'api/certificate_authorities', {
        body: {
          ca_pem: pem,
          ...(owner && { owner_id: owner }),
          ...(description && { description }),
        },
      }),
  })
  if (created) say(`The client CA ${nameOf(created)} was added.`)
  return created
}

const nameOf = ({ subject_common_name: name, id }) => name || id

function authorityDetails(authority, owner, reload) {
  const name = nameOf(authority)
  const { id, not_after: end } = authority
  return itemDetails(
    [actionButton('Delete', name, () => remove(authority, reload), true)],
    facts(
      ['Name', name],
      ['Description', authority.description],
      ['Owner', owner],
      ['Expires', `${formatDate(end)} (${formatDistance(end)})`],
      ['Added', formatDate(authority.created_at)],
      ['Id', element('code', {}, id)],
    ),
  )
}

async function remove(authority, reload) {
  const isDone = await confirm({
    title: `Delete the client CA ${nameOf(authority)}?`,
    text: 'Endpoints whose policies name it refuse all new connections.',
    action: 'Delete client CA',
    method: 'DELETE',
    path: `api/certificate_authorities/${authority.id}`,
    said: 'The client CA was deleted.',
  })
  if (isDone) await reload()
}
