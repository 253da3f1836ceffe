import { addDeviceButton } from '../add-device.js'
import { ask } from '../api.js'
import { deviceDetails } from '../device-details.js'
import { deviceFilter } from '../device-filter.js'
import { deviceSummary } from '../device-summary.js'
import { element, fill } from '../element.js'
import { figures } from '../figures.js'
import { formatBytes, formatNumber } from '../format.js'
import { itemList } from '../item-list.js'
import { missingNodes } from '../missing-nodes.js'
import { poll } from '../poll.js'
import { measureSums } from '../rates.js'
import { emptyState, pauseButton, viewHead } from '../view.js'

const REFRESH_MS = 2_000
/** From so many devices on, the gateway is asked less often. */
const MANY = 500
const REFRESH_MANY_MS = 5_000

/** All devices, online or not, with their traffic. */
export function devicesView() {
  const sums = figures('summary', ['Online', 'Not online', 'Requests', 'In', 'Out'])
  const filter = deviceFilter(() => list.goToStart())
  const list = itemList({
    label: 'Devices',
    nouns: 'devices',
    className: 'items-devices',
    filter,
    summary: deviceSummary,
    details: (device) => ({ ...deviceDetails(device, live.now), update: () => true }),
  })
  const below = element('div', { class: 'below' })
  const problem = element('div', {})
  const missing = missingNodes()
  const live = poll({
    everyMs: () => (count > MANY ? REFRESH_MANY_MS : REFRESH_MS),
    problem,
    look,
  })
  const addButton = addDeviceButton(live.now)
  const node = element(
    'div',
    {},
    viewHead('Devices', 'Devices, their state and traffic.', addButton, pauseButton(live)),
    problem,
    missing.node,
    sums.node,
    filter.node,
    list.node,
    below,
  )
  const rates = measureSums()
  let count = 0
  for (const part of [addButton, sums.node, filter.node]) part.hidden = true
  return { node, open: live.open, close }

  function close() {
    list.close()
    live.close()
  }

  async function look(isBackground) {
    const answer = await ask('GET', 'api/device_rows', { isBackground })
    return () => {
      const devices = rates.measure(answer.devices)
      count = devices.length
      missing.show(answer.missing_nodes)
      const isEmpty = count === 0
      // One button of a kind is enough: an empty list has its own.
      for (const part of [addButton, sums.node, filter.node]) part.hidden = isEmpty
      if (!isEmpty) fill(below)
      else if (!below.querySelector('.empty')) fill(below, noDevices(live.now))
      sums.show(sumsOf(devices))
      filter.offer(devices)
      list.show(devices, { isPart: answer.is_part })
      list.refresh()
    }
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
