/** A DNS label: the name becomes part of domains and of file names. */
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

/** Placeholder for the name of a device in templates of names and rules. */
export const NAME_PLACEHOLDER = '{name}'

export function isDeviceName(text: string): boolean {
  return NAME.test(text)
}

/** Fills the name of a device into a template. */
export function filled(template: string, name: string): string {
  return template.toLowerCase().replaceAll(NAME_PLACEHOLDER, name)
}

/** Names that a device may use. */
export interface DeviceNames {
  readonly name: string
  /** The wildcard that its names lie below, which other devices may share. */
  readonly domain: string
  /** Whether the wildcard is for this device alone. */
  readonly hasOwnDomain: boolean
  /** Its own name below the wildcard. */
  readonly agentDomain: string
}

export interface NameTemplates {
  /** A wildcard, such as `*.site.example.com` or `*.{name}.site.example.com`. */
  readonly domain: string
  /** Default: `agent` or the name of the device, below the wildcard. */
  readonly agentDomain?: string | undefined
}

/** Returns the names of a device, or the reason if the templates do not fit. */
export function deviceNames(
  name: string,
  templates: NameTemplates,
): DeviceNames | { readonly problem: string } {
  const domain = filled(templates.domain, name)
  const suffix = domain.slice(1)
  // A device with its own wildcard needs no extra label below it.
  const hasOwnDomain = templates.domain.includes(NAME_PLACEHOLDER)
  const first = hasOwnDomain ? 'agent' : name
  const agentDomain = filled(templates.agentDomain ?? `${first}${suffix}`, name)
  if (!domain.startsWith('*.')) {
    return { problem: `The domain ${domain} is not a wildcard. Use *.${domain}.` }
  }
  if (!agentDomain.endsWith(suffix)) {
    return {
      problem: `The agent domain ${agentDomain} is not below ${domain}, so the authtoken does not allow it.`,
    }
  }
  return { name, domain, hasOwnDomain, agentDomain }
}

/**
 * ACL rules of a device's authtoken. They allow only its own names, so no device can bind those of another.
 */
export function aclRules({ domain, hasOwnDomain, agentDomain }: DeviceNames): string[] {
  if (hasOwnDomain) return [`bind:${domain}`]
  return [`bind:${agentDomain}`, `bind:*.${agentDomain}`]
}

/** Metadata of a device's authtoken, by which its resources are recognized later. */
export function markOf({ name, domain }: Pick<DeviceNames, 'name' | 'domain'>): string {
  return `${markBegin(name)}"domain":${JSON.stringify(domain)}}`
}

/** Begin of the metadata of all authtokens that were issued for a device name. */
export function markBegin(name: string): string {
  return `{"provisioned_device":${JSON.stringify(name)},`
}
