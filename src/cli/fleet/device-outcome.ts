import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import {
  BusyError,
  type DeviceApi,
  OfflineError,
  OvertakenError,
  type TunnelSetAnswer,
} from './device-api.ts'
import type { WantedTunnel } from './fleet-file.ts'

/**
 * - `unmanaged`: no set applies to the device.
 * - `differs`: the plan has changes.
 * - `applied`: the changes were made.
 * - `pending`: nothing differs, but some tunnels are not online yet, or were refused.
 * - `stopped`: the command was stopped before the response. A sent change may have been made.
 */
export type DeviceState =
  | 'unmanaged'
  | 'same'
  | 'differs'
  | 'applied'
  | 'pending'
  | 'offline'
  | 'failed'
  | 'stopped'

/** Result for one device. */
export interface DeviceOutcome {
  readonly name: string
  readonly state: DeviceState
  /** The tunnels with a planned or applied change. */
  readonly tunnels: TunnelSetAnswer['tunnels']
  /** Why the device is offline or failed; for `pending`, the problem of a tunnel. */
  readonly problem: string | undefined
}

/** Attempts for a device that others change at the same time. */
const MAX_ROUNDS = 3
/** How often it is asked again because it is busy, and how long at most before. */
const MAX_RETRIES = 3
const MAX_PAUSE_S = 5

type Steps = TunnelSetAnswer['tunnels']

/** One device with its wanted tunnels. */
export interface DeviceWork {
  readonly name: string
  readonly api: DeviceApi
  /** Undefined where no set is for it. */
  readonly wanted: () => WantedTunnel[] | undefined
  readonly isApply: boolean
  /** By device: the planned changes of requests without a response. Kept for later attempts. */
  readonly attempted: Map<string, Steps>
  readonly clock: Clock
  readonly stop: AbortSignal
}

/**
 * Plans the changes of a device, and applies them if `isApply`. Never throws an error that a device can
 * cause.
 */
export async function bringInto(work: DeviceWork): Promise<DeviceOutcome> {
  const { name, stop } = work
  try {
    const wanted = work.wanted()
    return wanted ? await inRounds(work, wanted) : outcomeOf(name, 'unmanaged')
  } catch (error) {
    if (stop.aborted) return outcomeOf(name, 'stopped')
    if (error instanceof OfflineError) return outcomeOf(name, 'offline', [], error.message)
    if (error instanceof StartError) return outcomeOf(name, 'failed', [], error.message)
    throw error
  }
}

async function inRounds(work: DeviceWork, wanted: readonly WantedTunnel[]): Promise<DeviceOutcome> {
  const { api, clock, stop } = work
  let overtaken = 0
  let retries = 0
  let isReached = false
  const plan = async () => {
    const planned = await api.plan(wanted)
    isReached = true
    return planned
  }
  for (;;) {
    try {
      return await once(work, wanted, await plan())
    } catch (error) {
      if (error instanceof OvertakenError) {
        // The tunnels changed meanwhile: plan again.
        overtaken += 1
        if (overtaken >= MAX_ROUNDS) {
          throw new StartError(
            'Another client is changing the tunnels of this device. Try again later.',
          )
        }
        continue
      }
      const mayPass = error instanceof BusyError || (error instanceof OfflineError && isReached)
      if (!mayPass || retries >= MAX_RETRIES) throw error
      retries += 1
      const asked = error instanceof BusyError ? error.retryAfterS : undefined
      await clock.sleep(Math.min(asked ?? 1, MAX_PAUSE_S) * 1_000, stop)
    }
  }
}

async function once(
  { name, api, isApply, attempted }: DeviceWork,
  wanted: readonly WantedTunnel[],
  plan: TunnelSetAnswer,
): Promise<DeviceOutcome> {
  const differing = plan.tunnels.filter(({ action }) => action !== 'keep')
  if (!isApply && differing.length > 0) return outcomeOf(name, 'differs', differing)
  // Sent again, too, where nothing differs and not all is online: the device tries at once.
  if (!isApply || (differing.length === 0 && !notOnline(plan))) {
    return settled(name, plan, attempted.get(name))
  }
  if (differing.length > 0) attempted.set(name, differing)
  try {
    const done = await api.replace(wanted, plan.etag)
    const isNews = done.tunnels.some(({ action }) => action !== 'keep')
    const earlier = attempted.get(name)
    attempted.delete(name)
    return settled(name, done, isNews ? undefined : earlier)
  } catch (error) {
    if (error instanceof OvertakenError) attempted.delete(name)
    throw error
  }
}

/**
 * The result of a device without differences. `earlier`: changes of an earlier request without a response.
 */
function settled(name: string, view: TunnelSetAnswer, earlier: Steps | undefined): DeviceOutcome {
  const changed = view.tunnels.filter(({ action }) => action !== 'keep')
  const told = changed.length > 0 ? changed : (earlier ?? [])
  const waiting = notOnline(view)
  if (!waiting) return outcomeOf(name, told.length > 0 ? 'applied' : 'same', told)
  const { domain, state, last_error, remedy } = waiting
  const why = [last_error, remedy].filter((part) => part !== null).join(' ')
  const problem = `${domain || 'a tunnel without a name'} is ${state}${why === '' ? '' : `: ${why}`}`
  return outcomeOf(name, 'pending', told, problem)
}

const notOnline = ({ tunnels }: TunnelSetAnswer) =>
  tunnels.find(({ action, state }) => action !== 'delete' && state !== 'online')

function outcomeOf(
  name: string,
  state: DeviceState,
  tunnels: Steps = [],
  problem?: string,
): DeviceOutcome {
  return { name, state, tunnels, problem }
}
