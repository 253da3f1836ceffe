import type { DeviceOutcome, DeviceState } from './device-outcome.ts'
import { siteOf } from './fleet-file.ts'
import type { LastSeen } from './last-seen.ts'

/** Result for one device with its facts from the list, the device and the gateway. */
export interface DeviceReport extends DeviceOutcome {
  readonly agentDomain: string
  readonly tags: readonly string[]
  /** From the device; null unless `status` asked for it. */
  readonly verdict: string | null
  /** From the gateway, for an offline device. */
  readonly seen: LastSeen | undefined
}

/** Devices with the same change or the same fault. */
export interface DeviceGroup {
  readonly state: DeviceState
  readonly members: readonly DeviceReport[]
  /** For several devices with `{name}`, `{site}`, `{agent_domain}` and `{id}` in place of their own values. */
  readonly shown: Pick<DeviceReport, 'tunnels' | 'problem' | 'verdict'>
}

/** Faults are last, near the summary. */
const ORDER: readonly DeviceState[] = [
  'same',
  'applied',
  'differs',
  'pending',
  'unmanaged',
  'offline',
  'stopped',
  'failed',
]

/** Groups in the order of their states. `isEach`: a group for each device. */
export function groupsOf(reports: readonly DeviceReport[], isEach: boolean): DeviceGroup[] {
  const groups = new Map<string, DeviceReport[]>()
  for (const report of reports) {
    const { name, state, seen } = report
    const key = JSON.stringify([isEach && name, state, seen?.reason, templated(report)])
    const members = groups.get(key)
    if (members) members.push(report)
    else groups.set(key, [report])
  }
  return [...groups.values()]
    .map((members) => ({ members, ...shownOf(members) }))
    .sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state))
}

function shownOf(members: readonly DeviceReport[]): Omit<DeviceGroup, 'members'> {
  const [first] = members as [DeviceReport]
  return { state: first.state, shown: members.length === 1 ? first : templated(first) }
}

/** Ids of resources, such as that of an authtoken. Each device has its own. */
const RESOURCE_ID = /\b[a-z]{2,6}_[0-9A-Za-z]{27}\b/g

function templated(report: DeviceReport): DeviceGroup['shown'] {
  const { name, agentDomain, tunnels, problem, verdict } = report
  const own: readonly (readonly [text: string, variable: string])[] = [
    [agentDomain, '{agent_domain}'],
    [siteOf(agentDomain), '{site}'],
    [name, '{name}'],
  ]
  const patterns = own.flatMap(([text, variable]) =>
    text === ''
      ? []
      : [[new RegExp(`(?<![\\w-])${escaped(text)}(?![\\w-])`, 'g'), variable] as const],
  )
  const filled = (text: string) =>
    patterns.reduce((result, [pattern, variable]) => result.replace(pattern, variable), text)
  const alike = (text: string) => filled(text).replaceAll(RESOURCE_ID, '{id}')
  return {
    problem: problem && alike(problem),
    verdict: verdict && alike(verdict),
    tunnels: tunnels.map(({ action, domain, changes }) => ({
      action,
      domain: filled(domain),
      changes: JSON.parse(
        JSON.stringify(changes, (_key, value) =>
          typeof value === 'string' ? filled(value) : value,
        ),
      ) as typeof changes,
      // These say nothing of the change.
      ...{ url: null, state: null, last_error: null, remedy: null },
    })),
  }
}

const escaped = (text: string) => text.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')
