import { badge } from './card.js'
import { deviceDetails } from './device-details.js'
import { labelOf, reasonOf, sinceOf, toneOf } from './device-states.js'
import { element, fill, setText } from './element.js'
import { formatBytes, formatNumber } from './format.js'

/**
 * A device in a line, updated in place; its button opens what else there is to know. `open` says which
 * one is open, and is told when another shall be.
 */
export function deviceRow({ id }, { isOpen, toggle, reload }) {
  const dot = element('span', { class: 'dot', 'aria-hidden': 'true' })
  const name = element('span', { class: 'device-name' })
  const state = element('span', { class: 'device-state' })
  const tags = element('span', { class: 'device-tags' })
  const endpoints = element('span', { class: 'device-figure' })
  const rate = element('span', { class: 'device-figure' })
  const address = element('span', { class: 'device-address' })
  const button = element(
    'button',
    { type: 'button', class: 'device-line', 'aria-expanded': 'false', onclick: () => toggle(id) },
    dot,
    name,
    state,
    tags,
    endpoints,
    rate,
    address,
  )
  const below = element('div', { class: 'device-below' })
  const node = element('li', { class: 'device' }, button, below)
  let details
  let shown
  return { node, update, refresh: () => details?.refresh(), close: () => details?.close() }

  function update(device) {
    setText(name, device.name)
    setText(state, [labelOf(device.state), sinceOf(device)].filter(Boolean).join(' · '))
    setText(endpoints, count(device.endpoints, 'endpoint'))
    setText(
      rate,
      device.state === 'online'
        ? `${formatNumber(device.requestsPerS)} req/s · ${formatBytes(device.bytesPerS)}/s`
        : '',
    )
    setText(address, [device.ip, device.version].filter(Boolean).join(' · '))
    const text = JSON.stringify([device.is_duplicate, device.tags, device.state, device.reason])
    // What is set anew is painted anew.
    if (text !== shown) {
      shown = text
      dot.dataset.tone = toneOf(device.state)
      state.title = reasonOf(device)
      fill(
        tags,
        device.is_duplicate && badge('connected twice', 'bad'),
        device.tags.map((tag) => badge(tag)),
      )
    }
    showDetails(device)
  }

  function showDetails(device) {
    const isShown = isOpen(id)
    if (isShown === Boolean(details)) return
    button.setAttribute('aria-expanded', String(isShown))
    node.classList.toggle('is-open', isShown)
    details?.close()
    details = isShown ? deviceDetails(device, reload) : undefined
    fill(below, details?.node)
  }
}

function count(number, noun) {
  return `${formatNumber(number)} ${noun}${number === 1 ? '' : 's'}`
}
