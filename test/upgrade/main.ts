/**
 * `npm run test:upgrade [-- --old COMMIT] [name …]`: builds an older version and upgrades it to this tree while
 * visitors come. Ends with 1 when a bar is not met, with 2 at wrong usage.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hasPostgres } from '../helpers/postgres.ts'
import { runTrials } from '../helpers/trials.ts'
import { buildOld, lastRelease, type OldBuild } from './old-build.ts'
import { rollingUpgrade } from './rolling.ts'
import { upgradeTrials } from './two-builds.ts'

const folder = mkdtempSync(join(tmpdir(), 'device-agent-old-'))
process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))

const words = process.argv.slice(2)
const at = words.indexOf('--old')
const [, ref] = at < 0 ? [] : words.splice(at, 2)
let built: OldBuild | undefined
const old = (): OldBuild => {
  if (built) return built
  built = buildOld(ref ?? lastRelease(), folder)
  process.stderr.write(`old: version ${built.version}, commit ${built.commit}\n`)
  return built
}
if (at >= 0 && ref === undefined) {
  process.stderr.write('--old needs a commit.\n')
  process.exit(2)
}
// No release has clusters yet.
const wantsCluster = ref !== undefined || words.includes('cluster')
if (wantsCluster && !hasPostgres) {
  process.stderr.write('PostgreSQL is missing: apt-get install postgresql\n')
  process.exit(2)
}
const cluster = wantsCluster ? [rollingUpgrade(old)] : []
process.exit(
  await runTrials('test:upgrade', [...upgradeTrials(old), ...cluster], words).catch(
    (error: Error) => {
      process.stderr.write(`${error.stack}\n`)
      return 1
    },
  ),
)
