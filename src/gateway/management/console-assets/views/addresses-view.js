import { ask, askAll } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { formatDate } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

/** Reserved addresses: the ports that belong to one account, for SSH and the like. */
export function addressesView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Addresses',
    intro: 'Ports for services that do not use HTTP.',
    path: 'reserved_addrs',
    collection: 'reserved_addrs',
    createLabel: 'Reserve an address',
    create: reserve,
    empty: {
      title: 'No reserved addresses',
      text: 'TCP tunnels get any free address and keep it. Reserve an address to make it permanent.',
    },
    prepare: (items) => owners.learn(items),
    nameOf: ({ addr }) => addr,
    stateOf: () => ({ text: 'Reserved', tone: 'good' }),
    cellsOf: (it) => [ownerOf(it) ?? 'This gateway', it.description],
    ownerOf,
    search: {
      placeholder: 'address, owner, …',
      fields: ['addr', 'description'],
      texts: ({ description }) => [description],
    },
    details: (addr, { reload }) => ({ node: addressDetails(addr, ownerOf(addr), reload) }),
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
        placeholder: 'gw.example.com:20017',
        hint: 'Optional. Leave empty for any free address.',
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        hint: 'Only this owner can open it.',
        options: [['', 'This gateway'], ...botUsers.map(({ id, name }) => [id, name])],
      }),
      textField({
        name: 'description',
        label: 'Description',
        hint: 'Optional note.',
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
  if (reserved) say(`${reserved.addr} was reserved.`)
  return reserved
}

function addressDetails(reserved, owner, reload) {
  const { addr } = reserved
  return itemDetails(
    [actionButton('Delete', addr, () => release(reserved, reload), true)],
    facts(
      ['Address', addr],
      ['Description', reserved.description],
      ['Owner', owner],
      ['Reserved', formatDate(reserved.created_at)],
    ),
  )
}

async function release({ id, addr }, reload) {
  const isDone = await confirm({
    title: `Delete ${addr}?`,
    text: 'Any account that can open addresses of this gateway can then use it.',
    action: 'Delete address',
    method: 'DELETE',
    path: `api/reserved_addrs/${id}`,
    said: `${addr} was deleted.`,
  })
  if (isDone) await reload()
}
