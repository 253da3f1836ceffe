import { mkdtempSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AlwaysOnSite, meanwhile } from '../always-on/always-on-site.ts'
import { rowOf } from '../always-on/planned.ts'
import { MAIN } from '../helpers/program.ts'
import { row, type Trial, type TrialRow } from '../helpers/trials.ts'
import type { OldBuild } from './old-build.ts'

type Part = 'agent' | 'gateway'

/** A way from two old programs to two new ones. */
interface Path {
  readonly name: string
  readonly what: string
  readonly first: Part
  /** How the gateway gets its new program. */
  readonly by: 'restart' | 'reload'
}

const TUNNELS = 5
/** Time that each pair of versions serves without a change. */
const SERVE_MS = 10_000
/** The patience of a visitor. How long restarts take is measured by `test:always-on`. */
const WORST_MS = 60_000

const PATHS: readonly Path[] = [
  {
    ...{ name: 'gateway-first', first: 'gateway', by: 'restart' },
    what: 'the gateway is upgraded by a restart, then the agent',
  },
  {
    ...{ name: 'gateway-reload', first: 'gateway', by: 'reload' },
    what: 'the gateway is upgraded by a reload, then the agent',
  },
  {
    ...{ name: 'agent-first', first: 'agent', by: 'restart' },
    what: 'the agent is upgraded, then the gateway by a restart',
  },
]

export function upgradeTrials(old: () => OldBuild): Trial[] {
  return PATHS.map((path) => ({
    ...{ name: path.name, what: path.what },
    run: async () => {
      const rows: TrialRow[] = []
      for (const scheme of ['http', 'https'] as const) rows.push(...(await go(path, old(), scheme)))
      return rows
    },
  }))
}

async function go(path: Path, old: OldBuild, scheme: 'http' | 'https'): Promise<TrialRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-upgrade-'))
  const link = (part: Part) => join(folder, `${part}-program`)
  const install = (part: Part, main: string) => {
    symlinkSync(join(main, '../..'), `${link(part)}.new`)
    renameSync(`${link(part)}.new`, link(part))
  }
  const programs = {
    agent: join(link('agent'), 'dist/main.js'),
    gateway: join(link('gateway'), 'dist/main.js'),
  }
  install('agent', old.main)
  install('gateway', old.main)
  try {
    const site = await AlwaysOnSite.start({ folder, programs })
    try {
      await site.createTunnels(TUNNELS)
      const before = await tunnelsOf(site)
      const hosts = Array.from({ length: TUNNELS }, (_, index) => site.host(index))
      const visitors = site.visitors(scheme, hosts)
      const serve = async () => {
        await site.online(TUNNELS)
        await sleep(SERVE_MS)
        await visitors.caughtUp()
      }
      const upgrade = async (part: Part) => {
        install(part, MAIN)
        if (part === 'agent') await site.restartAgent('SIGTERM')
        else if (path.by === 'reload') await site.gateway.reload()
        else await site.restartGateway()
        await serve()
      }
      const visits = await meanwhile(visitors, async () => {
        await serve()
        await upgrade(path.first)
        // The two versions also find each other again after a restart of either.
        await site.restartAgent('SIGTERM')
        await serve()
        await site.restartGateway()
        await serve()
        await upgrade(path.first === 'agent' ? 'gateway' : 'agent')
      })
      const isSame = JSON.stringify(await tunnelsOf(site)) === JSON.stringify(before)
      return [
        rowOf(scheme, visits, WORST_MS),
        row(`${scheme}, tunnels`, isSame ? 'unchanged' : 'changed', 'unchanged', isSame),
      ]
    } finally {
      await site.stop()
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Fields that both versions have, and that no restart changes. */
async function tunnelsOf(site: AlwaysOnSite): Promise<unknown> {
  const answer = await site.call('GET', '/tunnels')
  const tunnels = (await answer.json()) as Record<string, unknown>[]
  return tunnels.map(({ url, protocol, forwards_to, domain, policy }) => {
    return { url, protocol, forwards_to, domain, policy }
  })
}
