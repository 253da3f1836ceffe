import { ask } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { openForm, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate, formatDistance } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

const NO_VAULT = 'ERR_NGROK_24009'

/** Secrets of policies. Their values can be set and not read. */
export function secretsView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Secrets',
    intro: 'Policies read secrets with secrets.get(). Values are never shown.',
    path: 'vault_secrets',
    collection: 'secrets',
    createLabel: 'Create a secret',
    create,
    empty: {
      title: 'No secrets',
      text: 'Create a secret, so that policies need no passwords and keys in them.',
    },
    prepare: (items) => owners.learn(items),
    nameOf: titleOf,
    stateOf: ({ used_by: users }) =>
      users.length > 0 ? { text: 'In use', tone: 'good' } : { text: 'Not used', tone: 'plain' },
    cellsOf: (it) => [
      ownerOf(it) ?? 'gateway owner',
      `value set ${formatDistance(it.value_set_at)}`,
    ],
    ownerOf,
    search: {
      placeholder: 'vault, name, …',
      fields: ['name', 'vault_name', 'description'],
      texts: (it) => [it.description, ...it.used_by.map(({ url }) => url)],
    },
    details: (secret, { reload }) => ({ node: secretDetails(secret, ownerOf(secret), reload) }),
  })
}

const valueField = () =>
  textField({
    name: 'value',
    label: 'Value',
    type: 'password',
    hint: '4 to 4,096 bytes. It is not shown again.',
  })

const allowField = (ids = []) =>
  textField({
    name: 'allow',
    label: 'Allowed for',
    value: ids.join(' '),
    hint: 'Ids of authtokens, bot users or domains, separated by spaces. Empty: only cloud endpoints.',
  })

const idsIn = (text) => text.split(/[\s,]+/).filter((id) => id !== '')

async function create() {
  return openForm({
    title: 'Create a secret',
    fields: [
      textField({
        name: 'vault',
        label: 'Vault',
        placeholder: 'site',
        hint: 'A group of secrets. It is created if needed.',
      }),
      textField({ name: 'name', label: 'Name', placeholder: 'api-key' }),
      valueField(),
      allowField(),
    ],
    action: 'Create',
    run: ({ vault, name, value, allow }) =>
      createIn(vault.trim(), {
        name: name.trim(),
        value,
        allow: idsIn(allow),
      }),
  })
}

/** Creates the vault first, if the account of the key has none with this name. */
async function createIn(vault, secret) {
  const body = { ...secret, vault_name: vault }
  try {
    return await ask('POST', 'api/vault_secrets', { body })
  } catch (error) {
    if (error.code !== NO_VAULT) throw error
  }
  await ask('POST', 'api/vaults', { body: { name: vault } })
  return ask('POST', 'api/vault_secrets', { body })
}

const titleOf = ({ vault_name: vault, name }) => `${vault}/${name}`

function secretDetails(secret, owner = 'Gateway owner', reload) {
  const { id, name, vault_name: vault, allow, used_by: users, description } = secret
  const title = titleOf(secret)
  return itemDetails(
    [
      actionButton('Replace value', title, () => replace(secret, title, reload)),
      actionButton('Change access', title, () => changeAccess(secret, title, reload)),
      actionButton('Delete', title, () => remove(secret, title, reload), true),
    ],
    facts(
      ['Owner', owner],
      ['Description', description],
      ['In policies', element('code', {}, `secrets.get('${vault}', '${name}')`)],
      ['Allowed for', allow.length > 0 ? allow.join(', ') : 'Cloud endpoints of the account'],
      ['Used by', users.length > 0 ? users.map(({ url }) => url).join(', ') : undefined],
      ['Value set', formatDate(secret.value_set_at)],
      ['Id', element('code', {}, id)],
    ),
  )
}

async function replace({ id }, title, reload) {
  const isDone = await openForm({
    title: `New value of ${title}`,
    text: 'The next request uses the new value.',
    fields: [valueField()],
    action: 'Replace',
    run: ({ value }) => ask('PATCH', `api/vault_secrets/${id}`, { body: { value } }),
  })
  if (!isDone) return
  say('The value was replaced.')
  await reload()
}

async function changeAccess({ id, allow: before }, title, reload) {
  const isDone = await openForm({
    title: `Access to ${title}`,
    text: 'Cloud endpoints of the account may always use it. The value stays.',
    fields: [allowField(before)],
    action: 'Save',
    run: ({ allow }) => ask('PATCH', `api/vault_secrets/${id}`, { body: { allow: idsIn(allow) } }),
  })
  if (!isDone) return
  say('The access was changed.')
  await reload()
}

async function remove({ id, used_by: users }, title, reload) {
  const isUsed = users.length > 0
  const isDone = await confirm({
    title: `Delete the secret ${title}?`,
    text: isUsed
      ? `Policies use it: ${users.map(({ url }) => url).join(', ')}. Their requests will fail. Tunnels of devices will be refused when the device connects again.`
      : 'No online endpoint uses it.',
    action: 'Delete secret',
    method: 'DELETE',
    path: isUsed ? `api/vault_secrets/${id}/force` : `api/vault_secrets/${id}`,
    said: 'The secret was deleted.',
  })
  if (isDone) await reload()
}
