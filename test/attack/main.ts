/**
 * `npm run test:attack [-- attack …]`: attacks the built program, gateway and agent a process each,
 * on loopback, and looks at what others notice. Ends with 1 when a bar is not met.
 */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { printTable } from '../../bench/tools.ts'
import type { Attack, AttackRow } from './attack.ts'
import { AttackSite } from './attack-site.ts'

const { stdout, stderr } = process

/** Each file `*-attack.ts` beside this one has one. */
async function findAttacks(): Promise<Attack[]> {
  const files = readdirSync(import.meta.dirname).filter((name) => name.endsWith('-attack.ts'))
  const modules = await Promise.all(files.sort().map((name) => import(`./${name}`)))
  return (modules as { attack: Attack }[]).map(({ attack }) => attack)
}

function usage(attacks: readonly Attack[]): string {
  const longest = Math.max(...attacks.map(({ name }) => name.length))
  const lines = attacks.map(({ name, what }) => `  ${name.padEnd(longest)}  ${what}`)
  return `Usage: npm run test:attack [-- attack …]

Runs the attacks that are named, or all, and prints what was measured beside its bar.
Ends with 1 when a bar is not met, with 2 when an attack is not known.

Attacks:
${lines.join('\n')}
`
}

async function run(attack: Attack): Promise<readonly AttackRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-attack-'))
  try {
    const site = await AttackSite.start(folder, attack.env ?? {})
    try {
      return await attack.run(site)
    } finally {
      await site.stop()
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function main(words: readonly string[]): Promise<number> {
  const attacks = await findAttacks()
  if (words.includes('--help') || words.includes('-h')) {
    stdout.write(usage(attacks))
    return 0
  }
  const unknown = words.filter((word) => !attacks.some(({ name }) => name === word))
  if (unknown.length > 0) {
    stderr.write(`There is no attack ${unknown.join(', ')}.\n\n${usage(attacks)}`)
    return 2
  }
  const rows: (AttackRow & { readonly name: string })[] = []
  for (const attack of attacks) {
    if (words.length > 0 && !words.includes(attack.name)) continue
    stderr.write(`${attack.name}: ${attack.what}\n`)
    for (const measured of await run(attack)) rows.push({ ...measured, name: attack.name })
  }
  printTable(
    ['attack', 'who', 'measured', 'bar', ''],
    rows.map((it) => [it.name, it.what, it.measured, it.bar, it.isMet ? 'met' : 'NOT MET']),
  )
  return rows.every(({ isMet }) => isMet) ? 0 : 1
}

process.exit(await main(process.argv.slice(2)))
