/**
 * `npm run test:attack [-- attack …]`: attacks the built program, gateway and agent a process each,
 * on loopback, and looks at what others notice. Ends with 1 when a bar is not met.
 */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runTrials, type TrialRow } from '../helpers/trials.ts'
import type { Attack } from './attack.ts'
import { AttackSite } from './attack-site.ts'

/** Each file `*-attack.ts` beside this one has one. */
async function findAttacks(): Promise<Attack[]> {
  const files = readdirSync(import.meta.dirname).filter((name) => name.endsWith('-attack.ts'))
  const modules = await Promise.all(files.sort().map((name) => import(`./${name}`)))
  return (modules as { attack: Attack }[]).map(({ attack }) => attack)
}

async function run(attack: Attack): Promise<readonly TrialRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-attack-'))
  try {
    const site = await AttackSite.start(folder, attack)
    try {
      return await attack.run(site)
    } finally {
      await site.stop()
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const attacks = await findAttacks()
const trials = attacks.map((attack) => ({
  name: attack.name,
  what: attack.what,
  run: () => run(attack),
}))
process.exit(await runTrials('test:attack', trials, process.argv.slice(2)))
