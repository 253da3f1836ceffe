import { StartError } from '../../base/app-error.ts'
import type { ListedDevice } from '../provision/device-list.ts'
import type { Fleet, TunnelSet, TunnelTemplate } from './fleet-file.ts'

/** A tunnel as `PUT /tunnels` takes it. */
export interface WantedTunnel {
  readonly protocol: string
  readonly forwards_to: string
  readonly domain?: string
  readonly policy: string | object | null
  readonly upstream?: object
  readonly pooling_enabled?: true
}

const VARIABLE = /\{([\w-]+)\}/g

/**
 * All tunnels that a device shall have; undefined where no set is for it: what nobody speaks of is left
 * alone. Throws a StartError for a variable without a value.
 */
export function wantedTunnels(
  fleet: Fleet,
  device: Pick<ListedDevice, 'name' | 'agentDomain' | 'tags'>,
): WantedTunnel[] | undefined {
  const tags = new Set(device.tags)
  const sets = Object.entries(fleet.sets).filter(([, set]) => set.tags.every((it) => tags.has(it)))
  if (sets.length === 0) return undefined
  return sets.flatMap(([name, set]) => tunnelsOf(fleet, device, name, set))
}

function tunnelsOf(
  fleet: Fleet,
  { name: device, agentDomain }: Pick<ListedDevice, 'name' | 'agentDomain'>,
  setName: string,
  set: TunnelSet,
): WantedTunnel[] {
  const values: Readonly<Record<string, string | number>> = {
    ...fleet.vars,
    ...set.vars,
    ...fleet.deviceVars[device],
    name: device,
    agent_domain: agentDomain,
    site: agentDomain.split('.').slice(1).join('.'),
  }
  return set.tunnels.map((template, at) => {
    const filled = (text: string) =>
      text.replaceAll(VARIABLE, (_whole, variable: string) => {
        const value = values[variable]
        if (value !== undefined) return String(value)
        throw new StartError(
          `/sets/${setName}/tunnels/${at}: {${variable}} has no value for ${device}. Set it in vars, in vars of the set, or in device_vars.`,
        )
      })
    return toWanted(template, filled, fleet)
  })
}

function toWanted(
  { protocol, domain, forwards_to, policy, upstream, pooling_enabled }: TunnelTemplate,
  filled: (text: string) => string,
  { policies }: Fleet,
): WantedTunnel {
  return {
    protocol: filled(protocol),
    forwards_to: filled(forwards_to),
    ...(domain !== undefined && { domain: filled(domain) }),
    policy: policy ? (policies[policy] ?? null) : null,
    ...(upstream && { upstream }),
    // Agents of before there were pools do not know the field.
    ...(pooling_enabled && { pooling_enabled }),
  }
}
