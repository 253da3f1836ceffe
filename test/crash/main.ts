/** `npm run test:crash [-- kills [seed]]`: the long kill loop; the seed decides its random choices. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { KillLoop } from './kill-loop.ts'

const kills = Number(process.argv[2] ?? 200)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const folder = mkdtempSync(join(tmpdir(), 'device-agent-crash-'))
const { stderr, stdout } = process

const showProgress = (count: number) => {
  if (stderr.isTTY) stderr.write(`\r\u001b[Kkill ${count} of ${kills}`)
  else if (count % 20 === 0) stderr.write(`kill ${count} of ${kills}\n`)
}

stdout.write(`seed ${seed}\n`)
try {
  const report = await KillLoop.run({ folder, kills, seed, onKill: showProgress })
  stdout.write(
    `\n${report.kills} kills: ${report.created} creates and ${report.deleted} deletes acknowledged, ` +
      `${report.unanswered} under way at a kill; nothing lost, no ghosts.\n`,
  )
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exit(0)
