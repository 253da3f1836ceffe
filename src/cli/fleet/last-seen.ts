import { existsSync } from 'node:fs'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { GONE_TEXTS } from '../../gateway/resources/devices/device-reports.ts'
import { apiKeyPath } from '../api-key-file.ts'
import type { CommandContext } from '../command-context.ts'
import {
  type ManagementOptions,
  managementConfig,
  openManagement,
} from '../provision/management-access.ts'

/** What the gateway knows of a device whose API is not reachable. */
export interface LastSeen {
  /** ISO time; null: never. */
  readonly at: string | null
  /** Why it is not connected; null: unknown. */
  readonly reason: string | null
}

const Device = z.object({
  id: z.string(),
  name: z.string(),
  state: z.string(),
  last_seen_at: z.string().nullable(),
  offline_reason: z.string().nullable(),
})

/**
 * Devices of the gateway by name. Undefined without a key: the results then lack these facts. A gateway that
 * the caller named and that refuses is a warning.
 */
export async function readLastSeen(
  context: CommandContext,
  options: ManagementOptions,
): Promise<ReadonlyMap<string, LastSeen> | undefined> {
  const { apiUrl, keyFile, keyStdin } = options
  const isAsked = apiUrl !== undefined || keyFile !== undefined || keyStdin === true
  try {
    const config = managementConfig(context, options)
    const hasKey = config.apiKey !== undefined || existsSync(apiKeyPath(config.gateway))
    if (!isAsked && !hasKey) return undefined
    const management = await openManagement(context, options, config)
    const found = new Map<string, LastSeen>()
    for (const device of await management.list('devices', Device)) {
      const seen = { at: device.last_seen_at, reason: reasonOf(device) }
      // A name may be in use twice: the device that was seen last counts.
      if ((found.get(device.name)?.at ?? '') <= (seen.at ?? '')) found.set(device.name, seen)
    }
    return found
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    if (isAsked) {
      context.stderr.write(
        `warning: the gateway does not tell why devices are offline: ${error.message}\n`,
      )
    }
    return undefined
  }
}

const REASONS: Readonly<Record<string, string>> = GONE_TEXTS

function reasonOf({ state, offline_reason: reason }: z.infer<typeof Device>): string | null {
  if (state === 'online') return 'The gateway says that the device is online.'
  if (state === 'never') return 'The device has never connected.'
  return reason === null ? null : (REASONS[reason] ?? reason)
}
