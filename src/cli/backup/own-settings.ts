import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'dotenv'
import { mergeSettings, readIfThere } from '../provision/env-file.ts'
import type { Backup } from './backup-file.ts'

const GATEWAY_ENV = 'etc/device-gateway/gateway.env'
/** Folder of settings in the backup. */
const SETTINGS = 'settings/'

/** Settings of one server of a cluster. If the server has one setting of a group, all others of the group go. */
const OWN = [
  ['GATEWAY_DATABASE_URL', 'GATEWAY_DATABASE_PASSWORD_FILE'],
  ['GATEWAY_PEER_LISTEN', 'GATEWAY_PEER_ADDRESS'],
  ['GATEWAY_PUBLIC_NAMES'],
] as const
/** Each token lets one gateway join, so that of the backup was used. */
const TOKEN = 'GATEWAY_JOIN_TOKEN_FILE'

export interface OwnSettings {
  /** The backup with the settings that belong on this server. */
  readonly backup: Backup
  /** Names of the settings that this server keeps. */
  readonly kept: readonly string[]
}

/**
 * Keeps what only this server of a cluster has: its database, addresses and join token, and the files of these
 * settings. Changes no file. Throws a StartError.
 */
export function keepOwnSettings(backup: Backup, root: string): OwnSettings {
  const env = backup.files.get(`${SETTINGS}${GATEWAY_ENV}`)
  if (!env) return { backup, kept: [] }
  const text = env.toString()
  const before: Record<string, string | undefined> = parse(text)
  const now: Record<string, string | undefined> = parse(readIfThere(join(root, GATEWAY_ENV)) ?? '')
  const groups = OWN.filter((group) => group.some((name) => now[name] !== undefined))
  const names = [...groups.flat(), TOKEN]
  const isSame = names.every((name) => before[name] === now[name])
  const own = Object.fromEntries(names.map((name) => [name, now[name]]))
  const files = new Map(backup.files)
  if (!isSame) files.set(`${SETTINGS}${GATEWAY_ENV}`, Buffer.from(mergeSettings(text, own)))
  for (const path of ownFiles(now)) {
    if (existsSync(join(root, path))) files.delete(join(SETTINGS, path))
  }
  const used = before[TOKEN]
  if (used !== undefined) files.delete(join(SETTINGS, used))
  const kept = names.filter((name) => now[name] !== undefined)
  return { backup: { ...backup, files }, kept }
}

/** Files that the settings of a server name. */
function ownFiles(settings: Record<string, string | undefined>): string[] {
  const { GATEWAY_DATABASE_URL: url = '', GATEWAY_DATABASE_PASSWORD_FILE: password } = settings
  const ca = URL.canParse(url) ? new URL(url).searchParams.get('sslrootcert') : undefined
  return [password, settings[TOKEN], ca].filter((path) => typeof path === 'string')
}
