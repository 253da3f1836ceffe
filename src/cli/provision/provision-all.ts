import { StartError } from '../../base/app-error.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { Account, ReservedDomain } from './account.ts'
import type { DeviceList } from './device-list.ts'
import {
  applyChange,
  type DevicePlan,
  describeChange,
  planDevice,
  type Step,
} from './provision-device.ts'
import { describeRetirement, planRetirement, retire } from './retire-device.ts'

/** Devices under way at once: each makes four things, one after the other, and shares requests for them with the others. */
const MAX_AT_ONCE = 64

export interface ProvisionAllOptions {
  readonly account: Account
  readonly devices: readonly DevicePlan[]
  readonly list: DeviceList
  /** `rotate` replaces their tokens, `retire` takes them out of service. */
  readonly mode: 'provision' | 'rotate' | 'retire'
  /** Only say what would be done. */
  readonly dryRun: boolean
  readonly onDone: (name: string) => void
}

export interface DeviceResult {
  readonly device: DevicePlan
  readonly steps: readonly Step[]
  readonly credentialId: string | null
  /** What a person has to do; undefined: it went well. */
  readonly error: string | undefined
}

export interface ProvisionResult {
  readonly domains: readonly ReservedDomain[]
  readonly domainSteps: readonly Step[]
  /** In the order of the devices. */
  readonly devices: readonly DeviceResult[]
}

/** Provisions every device; one that fails does not keep the others from it. */
export async function provisionAll(options: ProvisionAllOptions): Promise<ProvisionResult> {
  const { account, devices, dryRun, mode } = options
  // Domains stay: other devices may be below them.
  const names = mode === 'retire' ? [] : [...new Set(devices.map(({ domain }) => domain))]
  const missing = names.filter((name) => !account.hasDomain(name))
  const semaphore = new Semaphore(MAX_AT_ONCE)
  const results = await Promise.all(
    devices.map((device) => semaphore.run(() => provisionOne(device, options))),
  )
  // Those that could not be reserved are told by their devices.
  const asked = dryRun ? names.filter((name) => !missing.includes(name)) : names
  const settled = await Promise.allSettled(asked.map((name) => account.reserve(name)))
  const domains = settled.flatMap((it) => (it.status === 'fulfilled' ? [it.value] : []))
  const told = dryRun ? names : domains.map(({ domain }) => domain)
  const domainSteps = told.map((domain): Step => {
    return { action: missing.includes(domain) ? 'reserve' : 'keep', subject: `domain ${domain}` }
  })
  return { domains, domainSteps, devices: results }
}

async function provisionOne(
  device: DevicePlan,
  { account, list, mode, dryRun, onDone }: ProvisionAllOptions,
): Promise<DeviceResult> {
  try {
    if (mode === 'retire') {
      const retirement = planRetirement(account, list, device)
      const steps = describeRetirement(retirement)
      if (!dryRun) await retire(account, retirement)
      return { device, steps, credentialId: null, error: undefined }
    }
    if (!dryRun) await account.reserve(device.domain)
    const change = planDevice(account, list, device, mode === 'rotate')
    const steps = describeChange(account, change)
    const credentialId = dryRun ? (change.kept?.id ?? null) : await applyChange(account, change)
    return { device, steps, credentialId, error: undefined }
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    return { device, steps: [], credentialId: null, error: error.message }
  } finally {
    onDone(device.name)
  }
}
