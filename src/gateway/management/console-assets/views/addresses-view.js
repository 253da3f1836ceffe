import { ask, askAll } from '../api.js'
import { actionButton, cardHead, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { say } from '../notice.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

/** Reserved addresses: the ports that belong to one account, for SSH and the like. */
export function addressesView() {
  const owners = new OwnerNames()
  return listView({
    title: 'Addresses',
    intro: 'The ports under which services are reached that are no HTTP.',
    path: 'reserved_addrs',
    collection: 'reserved_addrs',
    createLabel: 'Reserve an address',
    create: reserve,
    empty: {
      title: 'No address is reserved',
      text: 'Tunnels for TCP get any free address, and keep it. Reserve one for what has to be the same for good.',
    },
    prepare: (items) => owners.learn(items),
    row: (addr, reload) => addressCard(addr, owners, reload),
  })
}

async function reserve() {
  const botUsers = await askAll('bot_users', 'bot_users')
  const reserved = await openForm({
    title: 'Reserve an address',
    fields: [
      textField({
        name: 'addr',
        label: 'Address',
        placeholder: 'gateway.example.com:20017',
        hint: 'May stay empty: then it is any that is free.',
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        hint: 'Nobody else may open it.',
        options: [['', 'This gateway'], ...botUsers.map(({ id, name }) => [id, name])],
      }),
      textField({
        name: 'description',
        label: 'Description',
        hint: 'For yourself; may stay empty.',
      }),
    ],
    action: 'Reserve',
    run: ({ addr, owner, description }) =>
      ask('POST', 'api/reserved_addrs', {
        body: {
          ...(addr.trim() && { addr: addr.trim() }),
          ...(owner && { owner_id: owner }),
          ...(description && { description }),
        },
      }),
  })
  if (reserved) say(`${reserved.addr} is reserved.`)
  return reserved
}

function addressCard(reserved, owners, reload) {
  const { addr, owner_id: owner } = reserved
  return element(
    'article',
    {},
    cardHead(addr, {
      actions: [actionButton('Delete', addr, () => release(reserved, reload), true)],
    }),
    facts(
      ['Description', reserved.description],
      ['Owner', owner && owners.of(owner)],
      ['Reserved', formatDate(reserved.created_at)],
    ),
  )
}

async function release({ id, addr }, reload) {
  const isDone = await confirm({
    title: `Delete ${addr}?`,
    text: 'Whoever may bind addresses of this gateway may then have it.',
    action: 'Delete address',
    method: 'DELETE',
    path: `api/reserved_addrs/${id}`,
    said: `${addr} is deleted.`,
  })
  if (isDone) await reload()
}
