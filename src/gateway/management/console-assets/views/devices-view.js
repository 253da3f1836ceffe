import { addDeviceButton } from '../add-device.js'
import { deviceDetails } from '../device-details.js'
import { deviceFilter } from '../device-filter.js'
import { deviceSummary } from '../device-summary.js'
import { liveListView } from './live-list-view.js'

const countOnline = (devices) => devices.filter(({ state }) => state === 'online').length

/** All devices, online or not, with their traffic. */
export function devicesView() {
  return liveListView({
    title: 'Devices',
    intro: 'Devices, their state and traffic.',
    path: 'device_rows',
    collection: 'devices',
    className: 'items-devices',
    sums: {
      Online: countOnline,
      'Not online': (devices) => devices.length - countOnline(devices),
    },
    filter: deviceFilter,
    summary: deviceSummary,
    details: (device, reload) => ({ ...deviceDetails(device, reload), update: () => true }),
    empty: {
      title: 'No devices yet',
      text: 'Add a device: you get one command. Run it on the device, and the device appears here.',
    },
    createButton: addDeviceButton,
  })
}
