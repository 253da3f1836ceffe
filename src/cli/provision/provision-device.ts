import { TOKEN_PREFIX } from '../../api/token-form.ts'
import { StartError } from '../../base/app-error.ts'
import { createToken, hashToken, Secret } from '../../base/secret.ts'
import { aclRules, type DeviceNames } from '../../gateway/access/device-names.ts'
import type { Account, BotUser, Credential } from './account.ts'
import type { DeviceList, ListedDevice } from './device-list.ts'
import { EnvFile, type EnvSettings, readIfThere, writePrivately } from './env-file.ts'

/** A device to be, and the files that it gets. */
export interface DevicePlan extends DeviceNames {
  /** Undefined: no change. */
  readonly tags: readonly string[] | undefined
  readonly envPath: string
  /** Path of the authtoken; undefined: among the settings. */
  readonly authtokenPath: string | undefined
  readonly serverAddr: string | undefined
  readonly caCertPath: string | undefined
}

/** A planned or completed step. */
export interface Step {
  readonly action: 'reserve' | 'create' | 'keep' | 'write' | 'revoke' | 'delete'
  readonly subject: string
}

/** Missing parts of a device. Nothing changes before it is applied. */
export interface DeviceChange {
  readonly device: DevicePlan
  readonly file: EnvFile
  /** Where the API tokens of the devices are kept. */
  readonly list: DeviceList
  /** Token of the device's API. */
  readonly apiToken: Secret
  readonly botUser: BotUser | undefined
  /** The authtoken that the device has and keeps; undefined: it gets one. */
  readonly kept: Credential | undefined
  /** All authtokens before a new one is issued. */
  readonly known: readonly Credential[]
  /** Authtokens that the new one replaces, and authtokens lost by an interruption. */
  readonly replaced: readonly Credential[]
}

/** Throws a StartError when a token of the device was lost, or is another's, and may not be replaced. */
export function planDevice(
  account: Account,
  list: DeviceList,
  device: DevicePlan,
  rotate: boolean,
): DeviceChange {
  const file = EnvFile.read(device.envPath)
  const all = account.credentialsOf(device)
  const { name, authtokenPath } = device
  const token = authtokenPath ? readIfThere(authtokenPath)?.trim() : file.get('SVC_AUTHTOKEN')
  const issued = token ? account.findIssued(token, name) : undefined
  const botUser = account.findBotUser(name)
  if (rotate) {
    const replaced = [...new Set(issued ? [...all, issued] : all)]
    const apiToken = newApiToken()
    return { device, file, list, apiToken, botUser, kept: undefined, known: all, replaced }
  }
  const pending = list.pendingOf(name)
  const isNew = (it: Credential) => pending !== undefined && !pending.before.includes(it.id)
  // A rotation ends the earlier authtokens. Others were lost by an interruption.
  const isRotated = pending?.isRotated === true && issued !== undefined && isNew(issued)
  const replaced = all.filter((it) => it !== issued && (isRotated || isNew(it)))
  const known = all.filter((it) => !replaced.includes(it))
  const isKept = issued !== undefined && known.includes(issued)
  if (isKept || (!token && known.length === 0)) {
    // A rotation that was stopped goes on: the API token of before ends with the authtokens.
    const apiToken = isRotated ? pending.apiToken : apiTokenOf(device, file, list)
    return { device, file, list, apiToken, botUser, kept: issued, known, replaced }
  }
  const path = authtokenPath ?? device.envPath
  throw new StartError(
    token
      ? `The authtoken in ${path} was not issued here for ${name} and ${device.domain}. Replace it with --rotate --name ${name}.`
      : `${name} has an authtoken that is not in ${path}. If the device lost it, replace it with --rotate --name ${name}.`,
  )
}

const newApiToken = () => new Secret(createToken(TOKEN_PREFIX))

/** The API token of the list, whose hash the device has or gets. A new token if the device has none. */
function apiTokenOf({ name, envPath }: DevicePlan, file: EnvFile, list: DeviceList): Secret {
  const pending = list.pendingOf(name)?.apiToken
  if (pending && file.get(HASH) === hashToken(pending.reveal())) return pending
  const known = list.get(name)?.apiToken
  if (known) return known
  if (file.get(HASH) === undefined) return newApiToken()
  throw new StartError(
    `The API token of ${envPath} is not in ${list.path}. Set --devices to the list that contains it, or replace the token with --rotate.`,
  )
}

export function describeChange(account: Account, change: DeviceChange): Step[] {
  const { device, file, list, botUser, kept, replaced } = change
  const { name, authtokenPath, envPath } = device
  const settings = settingsOf(change, file.get('SVC_AUTHTOKEN'))
  const isFileKept = kept && !file.differs(settings)
  const isNamed = kept && account.knowsDevice(kept.id, device)
  return [
    { action: botUser ? 'keep' : 'create', subject: `bot user ${name}` },
    kept
      ? { action: 'keep', subject: `authtoken ${kept.id}` }
      : { action: 'create', subject: `authtoken ${aclRules(device).join(' ')}` },
    { action: isListed(change) ? 'keep' : 'write', subject: list.path },
    ...(isNamed ? [] : [{ action: 'write', subject: `device ${name}` } as const]),
    ...(authtokenPath && !kept ? [{ action: 'write', subject: authtokenPath } as const] : []),
    { action: isFileKept ? 'keep' : 'write', subject: envPath },
    ...replaced.map(({ id }): Step => ({ action: 'revoke', subject: `authtoken ${id}` })),
  ]
}

/** Creates the missing parts. Returns the id of the device's credential. */
export async function applyChange(account: Account, change: DeviceChange): Promise<string> {
  const { device, file, list, kept, known, replaced } = change
  if (kept) {
    for (const lost of replaced) await account.revoke(lost)
    await account.allow(kept, device)
    await listDevice(change)
    writeIfDifferent(file, settingsOf(change, file.get('SVC_AUTHTOKEN')))
    await account.nameDevice(kept.id, device)
    return kept.id
  }
  const botUser = change.botUser ?? (await account.createBotUser(device.name))
  // First: after an interruption, the next run finds this entry. A hash on the device would be useless
  // without its token.
  const before = known.map(({ id }) => id)
  await list.addPending({ ...listedOf(change), before, isRotated: replaced.length > 0 })
  const { credential, authtoken } = await account.issue(device, botUser)
  try {
    writeToken(change, authtoken)
  } catch (error) {
    // This token was never shown.
    await account.revoke(credential)
    throw error
  }
  // The device has its token: should this fail, the next run makes it good.
  if (device.authtokenPath) writeIfDifferent(file, settingsOf(change, undefined))
  for (const old of replaced) await account.revoke(old)
  await listDevice(change)
  await account.nameDevice(credential.id, device)
  return credential.id
}

function writeToken(change: DeviceChange, authtoken: Secret): void {
  const { device, file } = change
  const token = authtoken.reveal()
  if (device.authtokenPath) writePrivately(device.authtokenPath, `${token}\n`)
  else writeIfDifferent(file, settingsOf(change, token))
}

function isListed({ device, list, apiToken }: DeviceChange): boolean {
  const listed = list.get(device.name)
  const tags = device.tags ?? listed?.tags
  return (
    list.pendingOf(device.name) === undefined &&
    listed?.agentDomain === device.agentDomain &&
    listed.apiToken.reveal() === apiToken.reveal() &&
    listed.tags.join() === tags?.join()
  )
}

async function listDevice(change: DeviceChange): Promise<void> {
  if (!isListed(change)) await change.list.put(listedOf(change))
}

function listedOf({ device, list, apiToken }: DeviceChange): ListedDevice {
  const { name, agentDomain } = device
  const tags = device.tags ?? (list.get(name) ?? list.pendingOf(name))?.tags ?? []
  return { name, agentDomain, tags, apiToken }
}

function writeIfDifferent(file: EnvFile, settings: EnvSettings): void {
  if (file.differs(settings)) file.write(settings)
}

const HASH = 'AGENT_API_TOKEN_SHA256'

function settingsOf({ device, apiToken }: DeviceChange, token: string | undefined): EnvSettings {
  const { agentDomain, authtokenPath, serverAddr, caCertPath } = device
  return {
    AGENT_DOMAIN: agentDomain,
    SVC_AUTHTOKEN: authtokenPath ? undefined : token,
    SVC_AUTHTOKEN_FILE: authtokenPath,
    // Of an interrupted join: it would win.
    SVC_AUTHTOKEN_JOINED: undefined,
    [HASH]: hashToken(apiToken.reveal()),
    // Options that are not given stay unchanged.
    ...(serverAddr && { SVC_SERVER_ADDR: serverAddr }),
    ...(caCertPath && { SVC_CA_CERT: caCertPath }),
  }
}
