import { addDevice } from '../add-device.js'
import { actionButton, badge, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { element } from '../element.js'
import { formatDate, formatDistance } from '../format.js'
import { itemDetails } from '../item-details.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

const STATES = {
  open: { text: 'Open', tone: 'wait' },
  used: { text: 'Used', tone: 'good' },
  expired: { text: 'Expired', tone: 'plain' },
  withdrawn: { text: 'Withdrawn', tone: 'bad' },
}

/** Invitations: with what devices join, and which devices have joined. */
export function invitesView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Invitations',
    intro: 'One command connects a device. Invitations are deleted 30 days after their end.',
    path: 'invites',
    collection: 'invites',
    createLabel: 'Add a device',
    create: addDevice,
    empty: {
      title: 'No invitations',
      text: 'Add a device: you get one command for it.',
    },
    prepare: (items) => owners.learn(items),
    nameOf,
    stateOf: ({ state }) => STATES[state],
    cellsOf: (invite) => [
      `${invite.uses} of ${invite.max_uses} ${invite.max_uses === 1 ? 'device' : 'devices'}`,
      endOf(invite),
    ],
    ownerOf,
    search: {
      placeholder: 'name, tag, device',
      fields: ['name', 'description', 'domain'],
      texts: ({ description, domain, tags, claims }) => [
        ...[description, domain, ...tags],
        ...claims.flatMap(({ name, address }) => [name, address]),
      ],
    },
    details: (invite, { reload }) => ({ node: inviteDetails(invite, ownerOf(invite), reload) }),
  })
}

function nameOf({ name, description, claims, uses }) {
  const [newest] = claims
  if (name || description) return name || description
  if (!newest) return 'Named by the device'
  return uses > 1 ? `${newest.name} and ${uses - 1} more` : newest.name
}

/** A used or withdrawn invitation has ended before its time. */
function endOf({ state, expires_at, claims: [newest] }) {
  if (state === 'open') return `ends ${formatDistance(expires_at)}`
  if (state === 'expired') return `ended ${formatDistance(expires_at)}`
  return newest && `joined ${formatDistance(newest.at)}`
}

function inviteDetails(invite, owner = 'Gateway owner', reload) {
  const { id, state, uses, max_uses, expires_at, tags, domain, acl } = invite
  return itemDetails(
    state === 'open' ? [withdrawButton(id, nameOf(invite), reload)] : [],
    facts(
      ['Owner', owner],
      ['Domain', domain],
      ['Further rules', acl.length > 0 ? rowOf(acl) : undefined],
      ['Tags', tags.length > 0 ? rowOf(tags) : undefined],
      ['Devices', `${uses} of ${max_uses}`],
      ['Ends', state === 'open' ? formatDate(expires_at) : undefined],
      ['Ended', state === 'expired' ? formatDate(expires_at) : undefined],
      ...invite.claims
        .slice(0, 5)
        .map((claim) => [
          'Joined',
          `${claim.name}, ${formatDate(claim.at)}, from ${claim.address}`,
        ]),
      ['Id', element('code', {}, id)],
    ),
  )
}

const rowOf = (texts) =>
  element(
    'span',
    { class: 'row' },
    texts.map((text) => badge(text)),
  )

function withdrawButton(id, title, reload) {
  return actionButton(
    'Withdraw',
    title,
    async () => {
      const isDone = await confirm({
        title: `Withdraw the invitation for ${title}?`,
        text: 'Its command stops working. Devices that have joined stay connected.',
        action: 'Withdraw invitation',
        method: 'DELETE',
        path: `api/invites/${id}`,
        said: 'The invitation was withdrawn.',
      })
      if (isDone) await reload()
    },
    true,
  )
}
