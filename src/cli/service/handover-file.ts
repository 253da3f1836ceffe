import { realpathSync, rmSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { parse } from 'dotenv'
import { isAuthtoken } from '../../agent/authtoken-source.ts'
import { StartError } from '../../base/app-error.ts'
import { syncFolder } from '../../base/file.ts'
import { Secret } from '../../base/secret.ts'
import { parseSettings } from '../../settings/settings.ts'
import { type EnvSettings, readIfThere } from '../provision/env-file.ts'
import { withPlaces } from '../settings-place.ts'

/** Settings that `provision` wrote for a device. */
export interface Handover {
  readonly authtoken: Secret | undefined
  readonly settings: EnvSettings
}

/** Throws a StartError if the file is missing or invalid. */
export function readHandover(path: string): Handover {
  const text = readIfThere(path)
  if (text === undefined) {
    throw new StartError(`File not found: ${path}. It may already have been installed.`)
  }
  const { SVC_AUTHTOKEN: token, ...settings } = parse(text)
  if (token === undefined && Object.keys(settings).length === 0) {
    throw new StartError(
      `${path} contains no settings. Use a file written by device-agent provision.`,
    )
  }
  try {
    parseSettings(settings)
  } catch (error) {
    throw withPlaces(error, settings, [path])
  }
  if (token === undefined) return { authtoken: undefined, settings }
  const authtoken = new Secret(token)
  if (isAuthtoken(authtoken.reveal())) return { authtoken, settings }
  throw new StartError(`${path} contains no SVC_AUTHTOKEN.`)
}

/** Whether two paths lead to the same file. A missing file equals none. */
export function isSameFile(one: string, other: string): boolean {
  try {
    return realpathSync(one) === realpathSync(other)
  } catch {
    return false
  }
}

/** Deletes a file so that a power cut does not bring it back. */
export function removeDurably(path: string): void {
  const whole = resolve(path)
  try {
    rmSync(whole, { force: true })
    syncFolder(dirname(whole))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(
      `Cannot delete ${path} (${code}). Delete it yourself, it contains a token.`,
      {
        cause: error,
      },
    )
  }
}
