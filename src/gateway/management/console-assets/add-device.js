import { ask, askAll } from './api.js'
import { copyButton } from './copy-button.js'
import { openForm, openNotice, selectField, textField } from './dialog.js'
import { element, fill } from './element.js'
import { formatDate } from './format.js'
import { icon } from './icon.js'
import { poll } from './poll.js'
import { qrCode } from './shown-once.js'

const REFRESH_MS = 2_000
const LOOPBACK = /^(127\.|localhost:|\[::1\])/
const OWN_DOMAIN = ''
/** Seconds, and their words in the form. */
const LIVES = [
  ['3600', 'One hour'],
  ['86400', 'One day'],
  ['604800', 'One week'],
  ['2592000', '30 days'],
]

/** Returns a button that opens the form for a new device. `reload` is called when it was closed. */
export function addDeviceButton(reload) {
  return element(
    'button',
    {
      type: 'button',
      class: 'button button-change button-primary',
      onclick: async () => {
        if (await addDevice()) await reload()
      },
    },
    'Add a device',
  )
}

/** Creates an invitation, and shows its command until the device is there. Resolves with the invitation. */
export async function addDevice() {
  const domains = (await askAll('reserved_domains', 'reserved_domains')).filter(({ domain }) =>
    domain.startsWith('*.'),
  )
  const invite = await openForm({
    title: 'Add a device',
    text: 'You get one command. Run it on the device, and the device appears here.',
    fields: [
      textField({
        name: 'name',
        label: 'Name',
        placeholder: 'camera-7',
        hint: 'Lower-case letters, digits and hyphens. Empty: the host name of the device.',
      }),
      textField({
        name: 'tags',
        label: 'Tags',
        placeholder: 'hall-3, camera',
        hint: 'Separated by commas. They group devices in this list.',
      }),
      selectField({
        name: 'domain',
        label: 'Domain',
        hint: 'The device may open its own name below this domain, and names below its own name.',
        options: [
          [OWN_DOMAIN, 'The domain of the gateway'],
          ...domains.map(({ domain }) => [domain, domain]),
        ],
      }),
      element(
        'details',
        { class: 'more' },
        element('summary', {}, 'More'),
        textField({
          name: 'uses',
          label: 'Number of devices',
          value: '1',
          type: 'number',
          hint: 'For more than one device, leave the name empty or write {name} in it: it becomes the host name.',
        }),
        selectField({ name: 'life', label: 'The command works for', options: LIVES }),
      ),
    ],
    action: 'Create the command',
    run: (values) => ask('POST', 'api/invites', { body: bodyOf(values, domains) }),
  })
  if (invite) await showCommand(invite)
  return invite
}

function bodyOf({ name, tags, domain, uses, life }, domains) {
  const owner = domains.find((it) => it.domain === domain)?.owner_id
  const labels = tags.split(',').flatMap((it) => it.trim() || [])
  return {
    ...(name.trim() && { name: name.trim() }),
    ...(labels.length > 0 && { tags: labels }),
    ...(domain !== OWN_DOMAIN && { domain }),
    ...(owner && { owner_id: owner }),
    max_uses: Number(uses),
    expires_at: new Date(Date.now() + Number(life) * 1_000).toISOString(),
  }
}

/** Shows the command once, and follows the invitation until it ends. */
async function showCommand(invite) {
  const { id, join_command: command, join_string: line } = invite
  const state = element('p', { class: 'join-state', role: 'status' })
  const problem = element('div', {})
  const code = await qrCode(line, 'the join string')
  let shown
  show(invite)
  const live = poll({
    everyMs: () => REFRESH_MS,
    problem,
    look: async (isBackground) => {
      const now = await ask('GET', `api/invites/${id}`, { isBackground })
      return () => show(now)
    },
  })
  void live.open()
  try {
    await openNotice({
      title: 'Run this command on the device',
      action: 'Done',
      content: [
        element(
          'div',
          { class: 'secret' },
          element('code', { class: 'secret-text', tabindex: '0' }, command),
          copyButton(command, 'the command'),
        ),
        onlyLoopback(line) && loopbackNotice(),
        invite.name_taken_by && takenNotice(invite),
        invite.domain_is_new && domainNotice(invite),
        element(
          'p',
          { class: 'dialog-text' },
          `It works ${usesText(invite)}, until ${formatDate(invite.expires_at)}. It is shown only now, and it is secret. The QR code contains the join string alone.`,
        ),
        code,
        problem,
        state,
      ],
    })
  } finally {
    live.close()
  }

  function show(now) {
    const [tone, text] = progressOf(now)
    // Text that stays is not set again, so that screen readers do not repeat it.
    if (text === shown) return
    shown = text
    state.dataset.tone = tone
    fill(state, icon(tone === 'good' ? 'done' : 'open'), element('span', {}, text))
  }
}

/** @returns {[string, string]} tone and sentence */
export function progressOf({ state, claims, uses, max_uses }) {
  const [newest] = claims
  if (newest) {
    const others = uses > 1 ? ` ${uses} of ${max_uses} devices have joined.` : ''
    return ['good', `${newest.name} has joined, from ${newest.address}.${others}`]
  }
  if (state === 'withdrawn') return ['bad', 'The invitation was withdrawn. Create another one.']
  if (state === 'expired') {
    return ['bad', 'The invitation has expired, and no device has used it. Create another one.']
  }
  return ['wait', 'Waiting for the device…']
}

const usesText = ({ max_uses }) => (max_uses === 1 ? 'once' : `for ${max_uses} devices`)

function onlyLoopback(line) {
  return line
    .slice(line.indexOf('@') + 1)
    .split(',')
    .every((address) => LOOPBACK.test(address))
}

function loopbackNotice() {
  return element(
    'p',
    { class: 'notice' },
    'The gateway knows only addresses of its own machine, so other devices cannot connect. Set ',
    element('code', {}, 'GATEWAY_PUBLIC_NAMES'),
    ' at the gateway, restart it, and create another command.',
  )
}

function domainNotice({ domain }) {
  return element(
    'p',
    { class: 'notice' },
    `${domain} is not reserved yet. It is reserved when the device joins, and needs DNS records.`,
  )
}

function takenNotice({ name, name_taken_by: { device_id } }) {
  return element(
    'p',
    { class: 'notice' },
    device_id
      ? `A device named ${name} exists. Only that device can join with this command. To give its name to another machine, revoke its authtoken first, or choose another name.`
      : `An account named ${name} exists. No device can join with this command. Choose another name.`,
  )
}
