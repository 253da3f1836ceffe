import { ask, askAll } from '../api.js'
import { actionButton, badge, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate } from '../format.js'
import { itemDetails } from '../item-details.js'
import { OwnerNames } from '../owner-names.js'
import { showOnce } from '../shown-once.js'
import { listView } from './list-view.js'

const ANY_NAME = ''
const OTHER_RULE = 'other'
const NOT_CHOSEN = 'none'
const ALL_NAMES = 'all domains of its owner'

/** Authtokens: with what devices sign in, and which names they may open. */
export function authtokensView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Authtokens',
    intro: 'Credentials of devices. ACL rules limit the names that a device can open.',
    path: 'credentials',
    collection: 'credentials',
    createLabel: 'Create an authtoken',
    create,
    empty: {
      title: 'No authtokens',
      text: 'Create an authtoken for each device or site, and set it on the device as SVC_AUTHTOKEN.',
    },
    prepare: (items) => owners.learn(items),
    nameOf,
    stateOf,
    cellsOf: (it) => [rulesText(it), ownerOf(it) ?? 'no owner'],
    ownerOf,
    search: {
      placeholder: 'rule, owner, …',
      fields: ['description', 'id'],
      texts: ({ acl }) => acl,
    },
    details: (credential, { reload }) => ({
      node: authtokenDetails(credential, ownerOf(credential), reload),
    }),
  })
}

async function create() {
  const [domains, botUsers] = await Promise.all([
    askAll('reserved_domains', 'reserved_domains'),
    askAll('bot_users', 'bot_users'),
  ])
  const otherRule = textField({
    name: 'other',
    label: 'Rule',
    placeholder: 'bind:cam.example.com',
    hint: 'bind: with a name, or with * for all names below a domain. share: with a name below .internal, for policies of all accounts.',
  })
  otherRule.hidden = domains.length > 0
  const credential = await openForm({
    title: 'Create an authtoken',
    fields: [
      textField({
        name: 'description',
        label: 'Description',
        hint: 'For example the name of the device.',
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        options: [
          ['', 'No owner'],
          ...botUsers.filter(({ active }) => active).map(({ id, name }) => [id, name]),
        ],
      }),
      selectField({
        name: 'rule',
        label: 'ACL rule',
        hint:
          domains.length === 0
            ? 'To choose a domain here, reserve it first.'
            : 'Names that the device can open. * stands for all names below the domain.',
        options: [
          // The newest domain would often be the wrong one.
          ...(domains.length > 0 ? [[NOT_CHOSEN, 'Choose a rule…']] : []),
          ...domains.map(({ domain }) => [`bind:${domain}`, `bind:${domain}`]),
          [OTHER_RULE, 'Another rule…'],
          [ANY_NAME, 'None: all domains of its owner'],
        ],
        onchange: ({ target }) => {
          otherRule.hidden = target.value !== OTHER_RULE
        },
      }),
      otherRule,
    ],
    action: 'Create',
    run: ({ description, owner, rule, other }) => {
      if (rule === NOT_CHOSEN) throw new Error('Choose an ACL rule.')
      const chosen = rule === OTHER_RULE ? other.trim() : rule
      return ask('POST', 'api/credentials', {
        body: {
          description,
          acl: rule === ANY_NAME ? [] : [chosen],
          ...(owner && { owner_id: owner }),
        },
      })
    },
  })
  if (!credential) return undefined
  await showOnce({
    title: 'Your new authtoken',
    text: 'Copy it now and set it on the device as SVC_AUTHTOKEN. It is not shown again. To connect a device with one command instead, use Add a device under Devices.',
    token: credential.token,
    what: 'the authtoken',
    hasQrCode: true,
  })
  return credential
}

const nameOf = ({ description, id }) => description || id

function stateOf({ rules_without_effect: rules = [] }) {
  return rules.length > 0
    ? { text: 'Rule without effect', tone: 'wait' }
    : { text: 'Valid', tone: 'good' }
}

function rulesText({ acl }) {
  if (acl.length === 0) return ALL_NAMES
  return acl.length === 1 ? acl[0] : `${acl[0]} and ${acl.length - 1} more`
}

function authtokenDetails(credential, owner = 'Gateway owner', reload) {
  const { id, acl, created_at, rules_without_effect = [] } = credential
  const name = nameOf(credential)
  const rules = acl.length === 0 ? [badge(ALL_NAMES)] : acl.map((rule) => badge(rule))
  return itemDetails(
    [actionButton('Delete', name, () => revoke(id, name, reload), true)],
    facts(
      ['Description', credential.description],
      ['Owner', owner],
      ['Can open', element('span', { class: 'row' }, rules)],
      ...rules_without_effect.map(({ rule, msg }) => ['No effect', `${rule}: ${msg}`]),
      ['Id', element('code', {}, id)],
      ['Created', formatDate(created_at)],
    ),
  )
}

async function revoke(id, name, reload) {
  const isDone = await confirm({
    title: `Delete ${name}?`,
    text: 'Devices with this authtoken are disconnected at once and cannot reconnect.',
    action: 'Delete authtoken',
    method: 'DELETE',
    path: `api/credentials/${id}`,
    said: 'The authtoken was deleted.',
  })
  if (isDone) await reload()
}
