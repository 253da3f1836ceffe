import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { syncFolder } from '../../base/file.ts'
import type { Account, BotUser, Credential } from './account.ts'
import type { DeviceList } from './device-list.ts'
import { readIfThere } from './env-file.ts'
import type { DevicePlan, Step } from './provision-device.ts'

/** What is left of a device that is taken out of service. */
export interface Retirement {
  readonly device: DevicePlan
  readonly list: DeviceList
  readonly credentials: readonly Credential[]
  readonly botUser: BotUser | undefined
  /** Only then may the bot user go: its API keys and endpoints go with it. */
  readonly isBotUserOurs: boolean
  /** Files with tokens that open nothing any more. */
  readonly files: readonly string[]
}

export function planRetirement(account: Account, list: DeviceList, device: DevicePlan): Retirement {
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

export function describeRetirement(retirement: Retirement): Step[] {
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
 * Its way in first: whatever stops this, the device is out. Done again, it goes on where it was, but
 * for a bot user without authtokens, which nothing tells to be ours.
 */
export async function retire(account: Account, retirement: Retirement): Promise<void> {
  const { device, list, credentials, botUser, isBotUserOurs, files } = retirement
  for (const credential of credentials) await account.revoke(credential)
  if (botUser && isBotUserOurs) await account.deleteBotUser(botUser)
  for (const path of files) {
    rmSync(path, { force: true })
    syncFolder(dirname(path))
  }
  await list.retire(device.name)
}
