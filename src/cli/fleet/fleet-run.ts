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
const LOOK_EVERY_MS = 5_000

export interface FleetRunOptions {
  readonly fleet: Fleet
  readonly devices: readonly ListedDevice[]
  /** Devices under way at once. */
  readonly parallel: number
  /** How long to wait for those that are offline; 0: not at all. */
  readonly waitMs: number
  readonly onDone: (outcome: DeviceOutcome) => void
  readonly clock: Clock
  readonly stop: AbortSignal
}

/**
 * Does something with each device, some at a time, and again with those that were offline until the
 * time is up. In the order of the devices; one that fails does not keep the others from it.
 */
export async function runFleet(
  options: FleetRunOptions,
  work: (device: ListedDevice, api: DeviceApi) => Promise<DeviceOutcome>,
): Promise<DeviceOutcome[]> {
  const { fleet, devices, parallel, waitMs, onDone, clock, stop } = options
  const { address, caPath } = fleet.connect
  const trust = caPath === undefined ? undefined : trustBeside(readCa(caPath))
  const semaphore = new Semaphore(parallel)
  const outcomes = new Map<string, DeviceOutcome>()
  const round = async (some: readonly ListedDevice[]) => {
    await Promise.all(
      some.map((device) =>
        semaphore.run(async () => {
          if (stop.aborted) return
          const outcome = await work(device, new DeviceApi({ device, address, trust, stop }))
          const isNews = outcome.state !== outcomes.get(device.name)?.state
          outcomes.set(device.name, outcome)
          if (isNews) onDone(outcome)
        }),
      ),
    )
  }
  await round(devices)
  const until = clock.monotonic() + waitMs
  const offline = () => devices.filter(({ name }) => outcomes.get(name)?.state === 'offline')
  while (offline().length > 0 && clock.monotonic() < until && !stop.aborted) {
    await clock.sleep(Math.min(LOOK_EVERY_MS, until - clock.monotonic()), stop).catch(() => {})
    await round(offline())
  }
  if (stop.aborted) {
    throw new StartError('Stopped before it was done: the next apply goes on where this one was.')
  }
  return devices.flatMap(({ name }) => outcomes.get(name) ?? [])
}

function readCa(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`connect.ca: ${path} cannot be read (${code}).`, { cause: error })
  }
}
