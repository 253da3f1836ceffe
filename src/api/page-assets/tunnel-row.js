import { ask } from './api.js'
import { actionButton, badge, facts } from './card.js'
import { conditionBadge, conditionText, isBad } from './condition.js'
import { copyButton } from './copy-button.js'
import { openForm } from './dialog.js'
import { element, fill, setText } from './element.js'
import { formatDistance } from './format.js'
import { icon } from './icon.js'
import { errorNotice, say } from './notice.js'
import { trafficPanel, trafficText } from './traffic.js'
import { openEditForm } from './tunnel-form.js'

/** A tunnel in one line. A button shows its address, its problem and its actions. */
export function tunnelRow(tunnel, { onChanged }) {
  let now = tunnel
  let shown = ''
  /** Made when the row is opened first. */
  let parts
  let samples = []
  const id = `details-${tunnel.id}`
  const name = element('h3', { class: 'tunnel-name' })
  const state = element('span', { class: 'tunnel-state' })
  const target = element('span', { class: 'tunnel-to' })
  const traffic = element('span', { class: 'tunnel-traffic' })
  const problem = element('div', {})
  const details = element('div', { class: 'tunnel-details', id, hidden: true })
  const more = element(
    'button',
    {
      type: 'button',
      class: 'button button-quiet tunnel-more',
      'aria-expanded': 'false',
      'aria-controls': id,
      onclick: toggle,
    },
    icon('more'),
  )
  const line = element('div', { class: 'tunnel-line' }, name, state, target, traffic, more)
  return {
    node: element('li', { class: 'tunnel' }, line, problem, details),
    update,
    showTraffic,
  }

  function update(next) {
    const view = JSON.stringify([next, factsOf(next)])
    if (view === shown) return
    shown = view
    now = next
    line.classList.toggle('is-quiet', now.isQuiet)
    // Not replaced without need: the link may have the focus.
    if (name.textContent !== shortName(now)) fill(name, nameOf(now))
    fill(state, now.isQuiet ? badge(conditionText(now.condition)) : conditionBadge(now.condition))
    setText(target, now.forwards_to)
    more.setAttribute('aria-label', `Details of ${titleOf(now)}`)
    showDetails()
  }

  function showTraffic(seen) {
    samples = seen
    setText(traffic, trafficText(samples))
    if (!details.hidden) parts?.showTraffic(samples)
  }

  function toggle() {
    details.hidden = !details.hidden
    more.setAttribute('aria-expanded', String(!details.hidden))
    showDetails()
  }

  /** The problem is in the line unless it is told elsewhere, and always in the details. */
  function showDetails() {
    const isShown = now.reason !== null && !now.isQuiet && !(now.isTold && details.hidden)
    fill(problem, isShown && trouble(now), policyWarning(now))
    if (details.hidden) return
    parts ??= makeDetails()
    parts.show(now)
    parts.showTraffic(samples)
  }

  function makeDetails() {
    const made = detailsOf(tunnel, { edit, remove })
    fill(details, made.node)
    return made
  }

  async function edit() {
    try {
      const changed = await openEditForm(now)
      if (!changed) return
      say(`${titleOf(now)} was changed.`)
      await onChanged()
    } catch (error) {
      fill(problem, errorNotice(error))
    }
  }

  async function remove() {
    const isRemoved = await openForm({
      title: `Remove ${titleOf(now)}?`,
      text: `Its public URL stops working immediately and returns 404. The service at ${now.forwards_to} keeps running.`,
      action: 'Remove tunnel',
      isDangerous: true,
      run: async () => {
        // By its id: another one may have the name by now.
        await ask('DELETE', `api/tunnels/${tunnel.id}`)
        return true
      },
    })
    if (!isRemoved) return
    say(`${titleOf(now)} was removed.`)
    await onChanged()
  }
}

function detailsOf({ id }, { edit, remove }) {
  const addresses = element('div', { class: 'tunnel-addresses' })
  const list = element('div', {})
  const change = actionButton('Edit', '', edit)
  const removal = actionButton('Remove', '', remove, true)
  const inspection = element(
    'a',
    { class: 'button button-change', href: `#/inspect/${id}` },
    'Inspect',
  )
  const actions = [change, inspection, removal]
  const traffic = trafficPanel()
  let copied
  const node = element(
    'div',
    {},
    addresses,
    list,
    traffic.node,
    element('div', { class: 'row' }, actions),
  )
  return { node, show, showTraffic: traffic.show }

  function show(now) {
    if (now.url !== copied) fill(addresses, addressesOf(now))
    copied = now.url
    fill(list, facts(...factsOf(now)))
    inspection.hidden = now.protocol !== 'http'
    // A tunnel is replaced by its name.
    change.hidden = now.domain === ''
    for (const action of actions) {
      action.setAttribute('aria-label', `${action.textContent} ${titleOf(now)}`)
    }
  }
}

const titleOf = ({ domain, forwards_to }) => domain || `the tunnel to ${forwards_to}`
const shortName = ({ url }) => url.replace(/^https:\/\//, '') || 'Name pending'

/** Web addresses are links. Others are for programs. */
function nameOf(tunnel) {
  const { url } = tunnel
  const name = breakable(shortName(tunnel))
  if (!url.startsWith('http')) return name
  return element('a', { href: url, target: '_blank', rel: 'noreferrer' }, name)
}

/** The parts of an address. A line breaks before a dot or the port first, and within a part if it has to. */
function breakable(address) {
  return address.split(/(?=[.:])/).flatMap((part) => [element('wbr'), part])
}

/** The address and a command that uses it, each with a button that copies it. */
function addressesOf({ url, protocol, forwards_to: target }) {
  if (url === '') return undefined
  const { hostname, port } = new URL(url.replace(/^(?:tcp|tls):/, 'https:'))
  const number = port || '443'
  const commands = {
    http: `curl ${url}`,
    tcp: target.endsWith(':22') ? `ssh -p ${number} ${hostname}` : `nc ${hostname} ${number}`,
    tls: `openssl s_client -connect ${hostname}:${number} -servername ${hostname}`,
  }
  return [url, commands[protocol]].map((text) =>
    element('div', { class: 'copied-line' }, element('code', {}, text), copyButton(text, text)),
  )
}

function factsOf(tunnel) {
  return [
    ['Since', formatDistance(tunnel.since)],
    ['Next try', tunnel.next_retry_at && formatDistance(tunnel.next_retry_at)],
  ]
}

function policyWarning({ policy_warning: warning }) {
  return (
    warning &&
    element('p', { class: 'hint' }, `The policy runs, but new checks refuse it: ${warning}`)
  )
}

function trouble({ condition, last_error: error, reason, remedy }) {
  return element(
    'div',
    { class: `trouble trouble-${isBad(condition) ? 'bad' : 'wait'}` },
    element('p', {}, error ?? reason),
    remedy && element('p', { class: 'remedy' }, remedy),
  )
}
