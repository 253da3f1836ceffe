import { addDeviceButton } from '../add-device.js'
import { ask, askPage } from '../api.js'
import { cloudEndpoints } from '../cloud-endpoints.js'
import { deviceChoice } from '../device-choice.js'
import { deviceRow } from '../device-row.js'
import { element, fill, keepChildren, keepFocus, setText } from '../element.js'
import { figures } from '../figures.js'
import { formatBytes, formatNumber } from '../format.js'
import { missingNodes } from '../missing-nodes.js'
import { poll } from '../poll.js'
import { measureSums } from '../rates.js'
import { emptyState, pauseButton, viewHead } from '../view.js'

const ROWS = 50
const REFRESH_MS = 2_000
/** From so many devices on, the gateway is asked less often. */
const MANY = 500
const REFRESH_MANY_MS = 5_000

/** All devices, online or not, with their traffic as it comes in, and the cloud endpoints. */
export function devicesView() {
  const kept = new Map()
  const sums = figures('summary', ['Online', 'Not online', 'Requests', 'In', 'Out'])
  const choice = deviceChoice(() => goTo(0))
  const list = element('ul', { class: 'devices', 'aria-label': 'Devices' })
  const none = element('p', { class: 'hint devices-none' }, 'No device matches the filter.')
  const range = element('p', { class: 'hint', role: 'status' })
  const earlier = pageButton('Previous', -1)
  const later = pageButton('Next', 1)
  const pager = element('div', { class: 'pager' }, earlier, range, later)
  const below = element('div', { class: 'below' })
  const cloud = cloudEndpoints()
  const problem = element('div', {})
  const missing = missingNodes()
  const live = poll({
    everyMs: () => (devices.length > MANY ? REFRESH_MANY_MS : REFRESH_MS),
    problem,
    look,
  })
  const intro = 'Devices, their state and traffic.'
  const addButton = addDeviceButton(live.now)
  addButton.hidden = true
  const node = element(
    'div',
    {},
    viewHead('Devices', intro, addButton, pauseButton(live)),
    problem,
    missing.node,
    sums.node,
    choice.node,
    list,
    none,
    pager,
    below,
    cloud.node,
  )
  const rates = measureSums()
  let devices = []
  let isPart = false
  let page = 0
  /** The id of the device whose details are shown. */
  let opened
  return { node, open, close }

  function open() {
    choice.node.hidden = true
    pager.hidden = true
    none.hidden = true
    return live.open()
  }

  function close() {
    for (const row of kept.values()) row.close()
    live.close()
  }

  async function look(isBackground) {
    const [answer, cloudPage] = await Promise.all([
      ask('GET', 'api/device_rows', { isBackground }),
      askPage('cloud_endpoints', 'cloud_endpoints', { isBackground }),
    ])
    return () => {
      cloud.show(cloudPage)
      devices = rates.measure(answer.devices)
      isPart = answer.is_part
      missing.show(answer.missing_nodes)
      show()
      kept.get(opened)?.refresh()
    }
  }

  function show() {
    const isEmpty = devices.length === 0
    for (const part of [sums.node, choice.node, list]) part.hidden = isEmpty
    // One button of a kind is enough: an empty list has its own.
    addButton.hidden = isEmpty
    if (isEmpty) {
      pager.hidden = true
      if (!below.querySelector('.empty')) fill(below, noDevices(live.now))
      return
    }
    fill(below)
    sums.show(sumsOf(devices))
    choice.offerTags(devices)
    showRows()
  }

  function showRows() {
    const chosen = choice.choose(devices)
    const pages = Math.max(1, Math.ceil(chosen.length / ROWS))
    page = Math.min(page, pages - 1)
    const shown = chosen.slice(page * ROWS, (page + 1) * ROWS)
    keepChildren(list, shown, kept, (device) =>
      deviceRow(device, { isOpen, toggle, reload: live.now }),
    )
    keepFocus()
    none.hidden = chosen.length > 0
    pager.hidden = chosen.length === 0
    earlier.hidden = pages === 1
    later.hidden = pages === 1
    earlier.disabled = page === 0
    later.disabled = page === pages - 1
    const from = page * ROWS + 1
    const all = formatNumber(chosen.length)
    const more = isPart ? '; the API lists older devices too' : ''
    const span = pages === 1 ? `${all} shown` : `${from} to ${from + shown.length - 1} of ${all}`
    const ofAll =
      chosen.length < devices.length ? `, of ${formatNumber(devices.length)} devices` : ''
    setText(range, `${span}${ofAll}${more}`)
  }

  function isOpen(id) {
    return opened === id
  }

  function toggle(id) {
    opened = opened === id ? undefined : id
    showRows()
  }

  function goTo(number) {
    page = number
    showRows()
    list.scrollIntoView({ block: 'nearest' })
  }

  function pageButton(label, step) {
    return element(
      'button',
      { type: 'button', class: 'button', onclick: () => goTo(page + step) },
      label,
    )
  }
}

function noDevices(reload) {
  return emptyState(
    'No devices yet',
    'Add a device: you get one command. Run it on the device, and the device appears here.',
    addDeviceButton(reload),
  )
}

function sumsOf(devices) {
  const online = devices.filter(({ state }) => state === 'online').length
  const sum = (read) => devices.reduce((total, device) => total + read(device), 0)
  return {
    Online: formatNumber(online),
    'Not online': formatNumber(devices.length - online),
    Requests: `${formatNumber(sum(({ requestsPerS }) => requestsPerS))}/s`,
    In: `${formatBytes(sum(({ bytesInPerS }) => bytesInPerS))}/s`,
    Out: `${formatBytes(sum(({ bytesOutPerS }) => bytesOutPerS))}/s`,
  }
}
