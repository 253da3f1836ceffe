import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { syncFolder } from '../../base/file.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { Account, BotUser, Credential, ReservedDomain } from './account.ts'
import type { DeviceList } from './device-list.ts'
import { readIfThere } from './env-file.ts'
import {
  applyChange,
  type DevicePlan,
  describeChange,
  planDevice,
  type Step,
} from './provision-device.ts'

/** Leftovers of a device that is taken out of service. */
interface Retirement {
  readonly device: DevicePlan
  readonly list: DeviceList
  readonly credentials: readonly Credential[]
  readonly botUser: BotUser | undefined
  /** Only then may the bot user go: its API keys and endpoints go with it. */
  readonly isBotUserOurs: boolean
  /** Files with tokens that are no longer valid. */
  readonly files: readonly string[]
}

function planRetirement(account: Account, list: DeviceList, device: DevicePlan): Retirement {
  const paths = [device.envPath, ...(device.authtokenPath ? [device.authtokenPath] : [])]
  const botUser = account.botUserNamed(device.name)
  return {
    device,
    list,
    credentials: account.credentialsNamed(device.name),
    botUser,
    isBotUserOurs: botUser !== undefined && account.isOurs(botUser),
    files: paths.filter((path) => readIfThere(path) !== undefined),
  }
}

function describeRetirement(retirement: Retirement): Step[] {
  const { device, list, credentials, files } = retirement
  return [
    ...credentials.map(({ id }): Step => ({ action: 'revoke', subject: `authtoken ${id}` })),
    ...botUserSteps(retirement),
    ...files.map((subject): Step => ({ action: 'delete', subject })),
    ...(list.get(device.name) ? [{ action: 'write', subject: list.path } as const] : []),
  ]
}

function botUserSteps({ device, botUser, isBotUserOurs }: Retirement): Step[] {
  if (!botUser) return []
  const subject = `bot user ${device.name}`
  if (isBotUserOurs) return [{ action: 'delete', subject }]
  return [{ action: 'keep', subject: `${subject}: shared with other devices` }]
}

/**
 * Removes the access first, so the device is out even if a later step fails. A repeated call continues.
 * Exception: a bot user without authtokens, which cannot be recognized as ours.
 */
async function retire(account: Account, retirement: Retirement): Promise<void> {
  const { device, list, credentials, botUser, isBotUserOurs, files } = retirement
  for (const credential of credentials) await account.revoke(credential)
  if (botUser && isBotUserOurs) await account.deleteBotUser(botUser)
  for (const path of files) {
    rmSync(path, { force: true })
    syncFolder(dirname(path))
  }
  await list.retire(device.name)
}

/** Devices under way at once: each makes four things, one after the other, and shares requests for them with the others. */
const MAX_AT_ONCE = 64

export interface ProvisionAllOptions {
  readonly account: Account
  readonly devices: readonly DevicePlan[]
  readonly list: DeviceList
  /** `rotate` replaces their tokens, `retire` takes them out of service. */
  readonly mode: 'provision' | 'rotate' | 'retire'
  /** Only prints the planned changes. */
  readonly dryRun: boolean
  readonly onDone: (name: string) => void
}

export interface DeviceResult {
  readonly device: DevicePlan
  readonly steps: readonly Step[]
  readonly credentialId: string | null
  /** Remedy; undefined if it succeeded. */
  readonly error: string | undefined
}

export interface ProvisionResult {
  readonly domains: readonly ReservedDomain[]
  readonly domainSteps: readonly Step[]
  /** In the order of the devices. */
  readonly devices: readonly DeviceResult[]
}

/** Provisions all devices. A failed device does not stop the others. */
export async function provisionAll(options: ProvisionAllOptions): Promise<ProvisionResult> {
  const { account, devices, dryRun, mode } = options
  // Domains stay: other devices may be below them.
  const names = mode === 'retire' ? [] : [...new Set(devices.map(({ domain }) => domain))]
  const missing = names.filter((name) => !account.hasDomain(name))
  const semaphore = new Semaphore(MAX_AT_ONCE)
  const results = await Promise.all(
    devices.map((device) => semaphore.run(() => provisionOne(device, options))),
  )
  // Devices report missing domains.
  const asked = dryRun ? names.filter((name) => !missing.includes(name)) : names
  const settled = await Promise.allSettled(asked.map((name) => account.reserve(name)))
  const domains = settled.flatMap((it) => (it.status === 'fulfilled' ? [it.value] : []))
  const told = dryRun ? names : domains.map(({ domain }) => domain)
  const domainSteps = told.map((domain): Step => {
    return { action: missing.includes(domain) ? 'reserve' : 'keep', subject: `domain ${domain}` }
  })
  const left = mode === 'retire' ? keptDomains(account, results) : []
  return { domains, domainSteps: [...domainSteps, ...left], devices: results }
}

/** Wildcards with the name of a device that is gone stay reserved. */
function keptDomains(account: Account, results: readonly DeviceResult[]): Step[] {
  const retired = results.filter(({ steps }) => steps.length > 0)
  return retired
    .flatMap(({ device }) => account.domainsOf(device.name))
    .map((domain) => ({ action: 'keep', subject: `domain ${domain}: still reserved` }))
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
