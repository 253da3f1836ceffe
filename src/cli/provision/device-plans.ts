import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { deviceNames, isDeviceName } from '../../gateway/access/device-names.ts'
import type { DevicePlan } from './provision-device.ts'

const MAX_DEVICES = 10_000
/** More than a person corrects at once. */
const MAX_PROBLEMS = 10

/** Throws a StartError unless the name can be a device's. */
export function checkDeviceName(name: string): void {
  if (!isDeviceName(name)) throw new StartError(`The name ${JSON.stringify(name)} ${WHY_NOT}.`)
}

const WHY_NOT = 'is not a valid device name: use up to 63 lower-case letters, digits and hyphens'

/**
 * The device names in a file, one on each line; empty lines and `# comments` are skipped.
 * Throws a StartError that names every bad line.
 */
export function readDeviceNames(path: string): string[] {
  const names = new Map<string, number>()
  const problems: string[] = []
  for (const [at, line] of readLines(path).entries()) {
    const name = line.replace(/(^|\s)#.*$/, '').trim()
    if (name === '') continue
    const first = names.get(name)
    if (first !== undefined) problems.push(`${path}:${at + 1}: ${name} is already in line ${first}`)
    else if (!isDeviceName(name))
      problems.push(`${path}:${at + 1}: ${JSON.stringify(name)} ${WHY_NOT}`)
    else names.set(name, at + 1)
  }
  const [shown, rest] = [problems.slice(0, MAX_PROBLEMS), problems.length - MAX_PROBLEMS]
  if (rest > 0) shown.push(`and ${rest} more`)
  if (problems.length > 0) throw new StartError(shown.join('\n'))
  if (names.size === 0)
    throw new StartError(`${path} contains no device names. Write one name per line.`)
  if (names.size > MAX_DEVICES) {
    throw new StartError(`${path} contains ${names.size} devices. The limit is ${MAX_DEVICES}.`)
  }
  return [...names.keys()]
}

function readLines(path: string): string[] {
  try {
    return readFileSync(path, 'utf8')
      .replace(/^\ufeff/, '')
      .split(/\r?\n/)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const why = code === 'ENOENT' ? 'file not found' : code
    throw new StartError(`Cannot read the list ${path}: ${why}.`, { cause: error })
  }
}

/** Common options of all devices of one call. `{name}` stands for the name of a device. */
export interface DeviceTemplate {
  readonly domain: string
  readonly agentDomain: string | undefined
  readonly tags: readonly string[] | undefined
  readonly outputFolder: string
  /** For a single device: instead of `<name>.env` in the output folder. */
  readonly envPath: string | undefined
  readonly authtokenPath: string | undefined
  readonly serverAddr: string | undefined
  readonly caCertPath: string | undefined
}

/** Throws a StartError when the devices would get in each other's way. */
export function planDevices(names: readonly string[], template: DeviceTemplate): DevicePlan[] {
  const devices = names.map((name) => devicePlan(name, template))
  const agentDomains = new Set(devices.map(({ agentDomain }) => agentDomain))
  if (agentDomains.size === devices.length) return devices
  throw new StartError(
    `${devices.length} devices cannot share the agent domain ${template.agentDomain}. Put {name} into it.`,
  )
}

function devicePlan(name: string, template: DeviceTemplate): DevicePlan {
  const { tags, outputFolder, envPath, authtokenPath, serverAddr, caCertPath } = template
  const names = deviceNames(name, template)
  if ('problem' in names) throw new StartError(names.problem)
  return {
    ...names,
    tags,
    envPath: resolve(envPath ?? join(outputFolder, `${name}.env`)),
    authtokenPath: authtokenPath && resolve(authtokenPath),
    serverAddr,
    caCertPath,
  }
}
