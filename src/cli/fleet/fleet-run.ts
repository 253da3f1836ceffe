import { readFileSync } from 'node:fs'
import { trustBeside } from '../../agent/probes/public-request.ts'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import { DeviceApi } from './device-api.ts'
import type { DeviceOutcome } from './device-outcome.ts'
import type { Fleet } from './fleet-file.ts'

/** How long between two looks for devices that are offline. */
const POLL_MS = 5_000
/** How long after the end of the wait a look at another device may begin. */
const LAST_POLL_MS = 30_000

export interface FleetRunOptions {
  readonly fleet: Fleet
  readonly devices: readonly ListedDevice[]
  /** Devices under way at once. */
  readonly parallel: number
  /** Time to wait for offline devices; 0: no wait. */
  readonly waitMs: number
  readonly onDone: (outcome: DeviceOutcome) => void
  /** So many are offline, and it begins to wait for them. */
  readonly onWait: (count: number) => void
  readonly clock: Clock
  readonly stop: AbortSignal
}

/**
 * Processes the devices with limited concurrency, and tries offline devices again until the time ends.
 * Results come in the order of the devices. A failed device does not stop the others. After a stop, the
 * remaining devices are `stopped`.
 */
export async function runFleet(
  options: FleetRunOptions,
  work: (device: ListedDevice, api: DeviceApi) => Promise<DeviceOutcome>,
): Promise<DeviceOutcome[]> {
  const { fleet, devices, parallel, waitMs, onDone, onWait, clock, stop } = options
  const { address, caPath } = fleet.connect
  const trust = caPath === undefined ? undefined : trustBeside(readCa(caPath))
  const semaphore = new Semaphore(parallel)
  const outcomes = new Map<string, DeviceOutcome>()
  const look = async (device: ListedDevice) => {
    const outcome = await work(device, new DeviceApi({ device, address, trust, stop }))
    const isNews = outcome.state !== outcomes.get(device.name)?.state
    outcomes.set(device.name, outcome)
    if (isNews) onDone(outcome)
  }
  const round = (some: readonly ListedDevice[], isOver: () => boolean) =>
    Promise.all(
      some.map((device) =>
        semaphore.run(async () => {
          if (!isOver()) await look(device)
        }),
      ),
    )
  await round(devices, () => stop.aborted)
  const until = clock.monotonic() + waitMs
  const offline = () => devices.filter(({ name }) => outcomes.get(name)?.state === 'offline')
  const isOver = () => stop.aborted || clock.monotonic() >= until
  if (offline().length > 0 && !isOver()) onWait(offline().length)
  while (offline().length > 0 && !isOver()) {
    await clock.sleep(Math.min(POLL_MS, until - clock.monotonic()), stop).catch(() => {})
    // The last look begins when the time is up; many that do not answer could make it a long one.
    await round(offline(), () => stop.aborted || clock.monotonic() >= until + LAST_POLL_MS)
  }
  return devices.map(({ name }) => outcomes.get(name) ?? stoppedOutcome(name))
}

const stoppedOutcome = (name: string): DeviceOutcome => ({
  name,
  state: 'stopped',
  tunnels: [],
  problem: undefined,
})

function readCa(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`connect.ca: cannot read ${path} (${code}).`, { cause: error })
  }
}
