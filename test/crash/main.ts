/** `npm run test:crash [-- kills [seed]]`: the long kill loops; the seed decides random choices. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { KillLoop } from './kill-loop.ts'
import { ManagementKillLoop } from './management-kill-loop.ts'
import { WebhookKillLoop } from './webhook-kill-loop.ts'

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
  for (const [name, loop] of [
    ['agent', KillLoop],
    ['gateway', ManagementKillLoop],
  ] as const) {
    const report = await loop.run({
      folder: mkdtempSync(join(folder, `${name}-`)),
      kills,
      seed,
      onKill: showProgress,
    })
    stdout.write(
      `\n${name}: ${report.kills} kills, ${report.created} creates and ${report.deleted} deletes ` +
        `acknowledged, ${report.unanswered} under way at a kill; nothing lost, no ghosts.\n`,
    )
  }
  const { events, again, silenceToldS } = await WebhookKillLoop.run({
    folder: mkdtempSync(join(folder, 'webhooks-')),
    kills,
    seed,
    onKill: showProgress,
  })
  stdout.write(
    `\nwebhooks: ${kills} kills, ${events} events, none lost, none out of order, ${again} sent again; ` +
      `a device that hung was told of after ${silenceToldS} s.\n`,
  )
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exit(0)
