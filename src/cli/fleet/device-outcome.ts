import type { TunnelSetView } from '../../api/tunnels/tunnel-set-view.ts'
import { StartError } from '../../base/app-error.ts'
import { type DeviceApi, OfflineError, OvertakenError } from './device-api.ts'
import type { WantedTunnel } from './wanted-tunnels.ts'

/**
 * `unmanaged`: no set is for it. `differs`: a plan has found changes. `applied`: what differed was
 * changed. `pending`: it was, and not all of it is online yet, or the service has refused some.
 */
export type DeviceState =
  | 'unmanaged'
  | 'same'
  | 'differs'
  | 'applied'
  | 'pending'
  | 'offline'
  | 'failed'

/** What was found, or done, at one device. */
export interface DeviceOutcome {
  readonly name: string
  readonly state: DeviceState
  /** Of each tunnel that differs, or did. */
  readonly tunnels: TunnelSetView['tunnels']
  /** Why it is offline or failed; of `pending`, what is wrong with a tunnel. */
  readonly problem: string | undefined
}

/** How often a device is looked at anew because somebody else is changing it. */
const MAX_ROUNDS = 3

/** Asks a device what would change, and changes it where `isApply`. Never throws what a device can cause. */
export async function bringInto(
  name: string,
  api: DeviceApi,
  wanted: () => WantedTunnel[] | undefined,
  isApply: boolean,
): Promise<DeviceOutcome> {
  const outcome = (
    state: DeviceState,
    tunnels: TunnelSetView['tunnels'] = [],
    problem?: string,
  ): DeviceOutcome => ({ name, state, tunnels, problem })
  try {
    const tunnels = wanted()
    if (!tunnels) return outcome('unmanaged')
    return await inRounds(api, tunnels, isApply, outcome)
  } catch (error) {
    if (error instanceof OfflineError) return outcome('offline', [], error.message)
    if (error instanceof StartError) return outcome('failed', [], error.message)
    throw error
  }
}

async function inRounds(
  api: DeviceApi,
  wanted: readonly WantedTunnel[],
  isApply: boolean,
  outcome: (
    state: DeviceState,
    tunnels?: TunnelSetView['tunnels'],
    problem?: string,
  ) => DeviceOutcome,
): Promise<DeviceOutcome> {
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const plan = await api.plan(wanted)
    const differing = plan.tunnels.filter(({ action }) => action !== 'keep')
    if (differing.length === 0) return outcome('same')
    if (!isApply) return outcome('differs', differing)
    try {
      const done = await api.replace(wanted, plan.etag)
      const changed = done.tunnels.filter(({ action }) => action !== 'keep')
      const waiting = changed.find(({ action, state }) => action !== 'delete' && state !== 'online')
      if (!waiting) return outcome('applied', changed)
      const { domain, state, last_error, remedy } = waiting
      const why = [last_error, remedy].filter((part) => part !== null).join(' ')
      return outcome('pending', changed, `${domain || 'a tcp tunnel'} is ${state}: ${why}`)
    } catch (error) {
      // Somebody was faster: what is right now is looked at again.
      if (!(error instanceof OvertakenError)) throw error
    }
  }
  throw new StartError('Somebody else is changing its tunnels: try again when they are done.')
}
