import { join, resolve } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { DevicePlan } from './provision-device.ts'

/** What all devices of one call have in common; `{name}` stands for each one's name. */
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
  const domain = filled(template.domain, name)
  const suffix = domain.slice(1)
  // A device with a wildcard of its own needs no name of its own below it.
  const hasOwnDomain = template.domain.includes('{name}')
  const first = hasOwnDomain ? 'agent' : name
  const agentDomain = filled(template.agentDomain ?? `${first}${suffix}`, name)
  if (!domain.startsWith('*.')) {
    throw new StartError(`The domain ${domain} is not a wildcard. Use *.${domain}.`)
  }
  if (!agentDomain.endsWith(suffix)) {
    throw new StartError(
      `The agent domain ${agentDomain} is not below ${domain}, so the authtoken does not allow it.`,
    )
  }
  return {
    name,
    domain,
    hasOwnDomain,
    agentDomain,
    tags,
    envPath: resolve(envPath ?? join(outputFolder, `${name}.env`)),
    authtokenPath: authtokenPath && resolve(authtokenPath),
    serverAddr,
    caCertPath,
  }
}

function filled(template: string, name: string): string {
  return template.toLowerCase().replaceAll('{name}', name)
}
