/**
 * `npm run test:always-on [-- name …]`: changes, restarts and kills gateway and agent, a process
 * each, while visitors come at all times. Ends with 1 when a bar is not met.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runTrials, type Trial, type TrialRow } from '../helpers/trials.ts'
import { type AlwaysOnOptions, AlwaysOnSite } from './always-on-site.ts'
import { tryDuplicate } from './duplicate.ts'
import { PLANNED_CHANGES, type PlannedChange, tryChange } from './planned.ts'
import { tryRefusals } from './refusals.ts'
import { tryTruths } from './truths.ts'
import { twoAddresses } from './two-addresses.ts'

async function withSite<T>(
  options: Omit<AlwaysOnOptions, 'folder'>,
  use: (site: AlwaysOnSite) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-always-on-'))
  try {
    const site = await AlwaysOnSite.start({ ...options, folder })
    try {
      return await use(site)
    } finally {
      await site.stop()
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function trialOf(change: PlannedChange): Trial {
  const { name, what, agentEnv, tunnels } = change
  const run = () =>
    withSite(agentEnv ? { agentEnv } : {}, async (site) => {
      await site.createTunnels(tunnels)
      const rows: TrialRow[] = []
      for (const scheme of ['http', 'https'] as const) {
        rows.push(await tryChange(site, change, scheme))
      }
      return rows
    })
  return { name, what, run }
}

const trials: readonly Trial[] = [
  ...PLANNED_CHANGES.map(trialOf),
  twoAddresses,
  {
    name: 'refusals',
    what: 'the gateway refuses for 8 s what it should not',
    run: () => withSite({}, tryRefusals),
  },
  {
    name: 'duplicate',
    what: 'a second agent runs on a copy of the data folder',
    run: () => withSite({}, tryDuplicate),
  },
  {
    name: 'truths',
    what: 'services fail in every way, and the gateway; the tunnels say so',
    run: () => withSite({}, tryTruths),
  },
]
process.exit(await runTrials('test:always-on', trials, process.argv.slice(2)))
