import { addDevice } from '../add-device.js'
import { actionButton, badge, cardHead, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

const TONES = { open: 'wait', used: 'good', expired: 'plain', withdrawn: 'bad' }

/** Invitations: with what devices join, and which devices have joined. */
export function invitesView() {
  const owners = new OwnerNames()
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
    row: (invite, reload) => inviteCard(invite, owners, reload),
  })
}

function inviteCard(invite, owners, reload) {
  const { id, name, description, state, uses, max_uses, expires_at, tags, domain, acl } = invite
  const title = name ?? (description || 'Named by the device')
  return element(
    'article',
    {},
    cardHead(title, {
      badge: badge(state, TONES[state]),
      actions: state === 'open' ? [withdrawButton(id, title, reload)] : [],
    }),
    facts(
      ['Owner', invite.owner_id ? owners.of(invite.owner_id) : 'Nobody'],
      ['Domain', domain],
      ['Further rules', acl.length > 0 ? rowOf(acl) : undefined],
      ['Tags', tags.length > 0 ? rowOf(tags) : undefined],
      ['Devices', `${uses} of ${max_uses}`],
      [state === 'open' ? 'Ends' : 'End', formatDate(expires_at)],
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
