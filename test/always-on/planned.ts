import { setTimeout as sleep } from 'node:timers/promises'
import { row, type TrialRow } from '../helpers/trials.ts'
import { type AlwaysOnSite, meanwhile } from './always-on-site.ts'
import { FOREIGN_HOST, foreignServes, startForeignDevice } from './foreign.ts'
import type { Visits } from './visitors.ts'

/** Something that is done to gateway or agent, and that no visitor may notice. */
export interface PlannedChange {
  readonly name: string
  readonly what: string
  /** The longest that a request may take, in ms. */
  readonly worstMs: number
  readonly tunnels: number
  readonly agentEnv?: Readonly<Record<string, string>>
  /** Ten unless given; what is cut in the middle cannot be repeated. */
  readonly downloads?: number
  /** Whom visitors ask for; the hosts of all tunnels unless given. */
  readonly hosts?: readonly string[]
  /** Before the first time; answers what ends it. */
  prepare?(site: AlwaysOnSite): Promise<() => Promise<void>>
  /** Once; `number` is another each time. Resolves when what was changed is in force. */
  act(site: AlwaysOnSite, number: number): Promise<void>
}

export const TIMES = Number(process.env.ALWAYS_ON_TIMES ?? 20)

export const PLANNED_CHANGES: readonly PlannedChange[] = [
  {
    name: 'agent',
    what: 'the agent is restarted',
    // Downloads of five seconds end first, and nothing new may begin meanwhile.
    worstMs: 10_000,
    tunnels: 1,
    act: (site) => site.restartAgent('SIGTERM'),
  },
  {
    name: 'gateway',
    what: 'the gateway is restarted',
    worstMs: 10_000,
    tunnels: 1,
    act: (site) => site.restartGateway(),
  },
  {
    name: 'reload',
    what: 'the gateway is reloaded',
    worstMs: 1_000,
    tunnels: 1,
    act: (site) => site.gateway.reload(),
  },
  {
    name: 'foreign',
    what: 'the gateway of a device that has the vendor’s SDK alone is restarted',
    worstMs: 10_000,
    tunnels: 0,
    hosts: [FOREIGN_HOST],
    prepare: startForeignDevice,
    act: async (site) => {
      await site.restartGateway()
      await foreignServes(site)
    },
  },
  {
    name: 'foreign-reload',
    what: 'the gateway of such a device is reloaded',
    // It has one session, which ends when the downloads on it have.
    worstMs: 10_000,
    tunnels: 0,
    hosts: [FOREIGN_HOST],
    prepare: startForeignDevice,
    act: async (site) => {
      await site.gateway.reload()
      await foreignServes(site)
    },
  },
  {
    name: 'agent-kill',
    what: 'the agent is killed',
    worstMs: 10_000,
    tunnels: 1,
    downloads: 0,
    act: (site) => site.restartAgent('SIGKILL'),
  },
  {
    name: 'policy',
    what: 'the policy of a tunnel is changed',
    worstMs: 5_000,
    tunnels: 1,
    act: async (site, number) => {
      await site.setPolicy(0, number)
      await site.inForce(site.host(0), number)
    },
  },
  {
    name: 'default-policy',
    what: 'the default policy of 50 tunnels is changed',
    worstMs: 5_000,
    tunnels: 50,
    agentEnv: { AGENT_DEFAULT_POLICY: 'default-policy.json' },
    act: async (site, number) => {
      site.setDefaultPolicy(number)
      for (let index = 0; index < 50; index += 1) await site.inForce(site.host(index), number)
    },
  },
  {
    name: 'authtoken',
    what: 'the authtoken of the device is replaced',
    worstMs: 5_000,
    tunnels: 1,
    act: (site) => site.rotateToken(),
  },
]

/** Does it so many times while visitors come, and asks each time that all tunnels are back. */
export async function tryChange(
  site: AlwaysOnSite,
  change: PlannedChange,
  scheme: 'http' | 'https',
): Promise<TrialRow> {
  const { tunnels, worstMs, downloads } = change
  const ofTunnels = Array.from({ length: tunnels }, (_, index) => site.host(index))
  const hosts = change.hosts ?? ofTunnels
  const end = await change.prepare?.(site)
  const visitors = site.visitors(scheme, hosts, downloads === undefined ? {} : { downloads })
  const visits = await meanwhile(visitors, async () => {
    for (let number = 1; number <= TIMES; number += 1) {
      await change.act(site, number)
      await sleep(1_000)
      await site.online(tunnels)
      await visitors.caughtUp()
    }
  })
  await end?.()
  return rowOf(`${TIMES} times, ${scheme}`, visits, worstMs)
}

export function rowOf(what: string, visits: Visits, worstMs: number): TrialRow {
  const { requests, downloads, failed, again, worstMs: worst } = visits
  const failures = [...failed.values()].reduce((sum, count) => sum + count, 0)
  const said = [...failed].map(([outcome, count]) => `${count} x ${outcome}`).join(', ')
  const retried = again > 0 ? `, ${again} asked again` : ''
  const measured = `${failures} of ${requests + downloads} failed${retried}, worst ${(worst / 1_000).toFixed(2)} s${said && ` (${said})`}`
  const bar = `0 failed, worst < ${worstMs / 1_000} s`
  return row(what, measured, bar, failures === 0 && worst < worstMs)
}
