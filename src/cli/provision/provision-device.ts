import { StartError } from '../../base/app-error.ts'
import type { Secret } from '../../base/secret.ts'
import {
  type Account,
  aclRule,
  type BotUser,
  type Credential,
  type DeviceRights,
} from './account.ts'
import { EnvFile, type EnvSettings, readIfThere, writePrivately } from './env-file.ts'

/** A device to be, and the files that it gets. */
export interface DevicePlan extends DeviceRights {
  readonly agentDomain: string
  readonly envPath: string
  /** Where the authtoken goes; undefined: among the settings. */
  readonly authtokenPath: string | undefined
  readonly serverAddr: string | undefined
  readonly caCertPath: string | undefined
}

/** What was done, or would be. */
export interface Step {
  readonly action: 'reserve' | 'create' | 'keep' | 'write' | 'revoke'
  readonly subject: string
}

/** What a device lacks; nothing is changed until it is applied. */
export interface DeviceChange {
  readonly device: DevicePlan
  readonly file: EnvFile
  readonly botUser: BotUser | undefined
  /** The authtoken that the device has and keeps; undefined: it gets one. */
  readonly kept: Credential | undefined
  /** Those that the new one replaces. */
  readonly replaced: readonly Credential[]
}

/** Throws a StartError when the device's token was lost, or is another's, and may not be replaced. */
export function planDevice(account: Account, device: DevicePlan, rotate: boolean): DeviceChange {
  const file = EnvFile.read(device.envPath)
  const known = account.credentialsOf(device)
  const { name, authtokenPath } = device
  const token = authtokenPath ? readIfThere(authtokenPath)?.trim() : file.get('SVC_AUTHTOKEN')
  const issued = token ? account.findIssued(token, name) : undefined
  const botUser = account.findBotUser(name)
  if (rotate) {
    const replaced = new Set(issued ? [...known, issued] : known)
    return { device, file, botUser, kept: undefined, replaced: [...replaced] }
  }
  const isKept = issued !== undefined && known.includes(issued)
  if (isKept || (!token && known.length === 0)) {
    return { device, file, botUser, kept: issued, replaced: [] }
  }
  const path = authtokenPath ?? device.envPath
  throw new StartError(
    token
      ? `The authtoken in ${path} was not issued here for ${name} and ${device.domain}: --rotate replaces it.`
      : `The authtoken of ${name} was shown once and is not in ${path}: --rotate replaces it.`,
  )
}

export function describeChange({ device, file, botUser, kept, replaced }: DeviceChange): Step[] {
  const { name, authtokenPath, envPath } = device
  const isFileKept = kept && !file.differs(settingsOf(device, file.get('SVC_AUTHTOKEN')))
  return [
    { action: botUser ? 'keep' : 'create', subject: `bot user ${name}` },
    kept
      ? { action: 'keep', subject: `authtoken ${kept.id}` }
      : { action: 'create', subject: `authtoken ${aclRule(device)}` },
    ...(authtokenPath && !kept ? [{ action: 'write', subject: authtokenPath } as const] : []),
    { action: isFileKept ? 'keep' : 'write', subject: envPath },
    ...replaced.map(({ id }): Step => ({ action: 'revoke', subject: `authtoken ${id}` })),
  ]
}

/** Makes what is missing; answers the id of the device's credential. */
export async function applyChange(account: Account, change: DeviceChange): Promise<string> {
  const { device, file, kept, replaced } = change
  if (kept) {
    writeIfDifferent(file, settingsOf(device, file.get('SVC_AUTHTOKEN')))
    return kept.id
  }
  const botUser = change.botUser ?? (await account.createBotUser(device.name))
  const { credential, authtoken } = await account.issue(device, botUser)
  try {
    writeToken(change, authtoken)
  } catch (error) {
    // Nobody has seen this token, and nobody ever will.
    await account.revoke(credential)
    throw error
  }
  // The device has its token: should this fail, the next run makes it good.
  if (device.authtokenPath) writeIfDifferent(file, settingsOf(device, undefined))
  for (const old of replaced) await account.revoke(old)
  return credential.id
}

function writeToken({ device, file }: DeviceChange, authtoken: Secret): void {
  const token = authtoken.reveal()
  if (device.authtokenPath) writePrivately(device.authtokenPath, `${token}\n`)
  else writeIfDifferent(file, settingsOf(device, token))
}

function writeIfDifferent(file: EnvFile, settings: EnvSettings): void {
  if (file.differs(settings)) file.write(settings)
}

function settingsOf(device: DevicePlan, token: string | undefined): EnvSettings {
  const { agentDomain, authtokenPath, serverAddr, caCertPath } = device
  return {
    AGENT_DOMAIN: agentDomain,
    SVC_AUTHTOKEN: authtokenPath ? undefined : token,
    SVC_AUTHTOKEN_FILE: authtokenPath,
    // What is not given stays as it is.
    ...(serverAddr && { SVC_SERVER_ADDR: serverAddr }),
    ...(caCertPath && { SVC_CA_CERT: caCertPath }),
  }
}
