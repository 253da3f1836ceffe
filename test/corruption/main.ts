/** `npm run test:corruption [-- count [seed]]`: damages databases at random, and starts them. */
import process from 'node:process'
import { Specimen, TARGETS } from './corruption.ts'
import { OWNERS } from './owners.ts'

const runs = Number(process.argv[2] ?? 500)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const { stdout } = process
let found = 0

stdout.write(`seed ${seed}, ${runs} runs each\n\n`)
stdout.write(
  '| database | damaged | nothing noticed | healed, whole | missing, and told | told in vain | silent or looping |\n',
)
stdout.write('|---|---|---|---|---|---|---|\n')
for (const [name, owner] of Object.entries(OWNERS)) {
  const specimen = Specimen.make(owner)
  try {
    for (const [target, ends] of Object.entries(TARGETS)) {
      const { outcomes, findings } = specimen.examine(ends, runs, seed)
      const { sound, healed, told, alarm } = outcomes
      const cells = [name, target, sound, healed, told, alarm, findings.length]
      stdout.write(`| ${cells.join(' | ')} |\n`)
      for (const { run, harms, what } of findings.slice(0, 10)) {
        stdout.write(`  run ${run}: ${what} (${harms.join(', ')})\n`)
      }
      found += findings.length
    }
  } finally {
    specimen.remove()
  }
}
process.exitCode = found === 0 ? 0 : 1
