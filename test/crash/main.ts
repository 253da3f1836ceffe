/**
 * `npm run test:crash [-- kills [seed [loop]]]`: the long kill loops, or one of them: `agent`, `gateway` or
 * `webhooks`. The seed decides random choices. Ends with 1 when a loop fails, or hangs: a kill may take
 * 20 s on a busy machine.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withDeadline } from '../../src/base/deadline.ts'
import { KillLoop } from './kill-loop.ts'
import { ManagementKillLoop } from './management-kill-loop.ts'
import { WebhookKillLoop } from './webhook-kill-loop.ts'

const kills = Number(process.argv[2] ?? 200)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const folder = mkdtempSync(join(tmpdir(), 'device-agent-crash-'))
const { stderr, stdout } = process

const only = process.argv[4]
const PATIENCE_S = 300 + 20 * kills

const showProgress = (count: number) => {
  if (stderr.isTTY) stderr.write(`\r\u001b[Kkill ${count} of ${kills}`)
  else if (count % 20 === 0) stderr.write(`kill ${count} of ${kills}\n`)
}

async function runLoop(name: string): Promise<string> {
  const options = {
    folder: mkdtempSync(join(folder, `${name}-`)),
    kills,
    seed,
    onKill: showProgress,
  }
  if (name === 'webhooks') {
    const { events, again, silenceToldS } = await WebhookKillLoop.run(options)
    return (
      `${kills} kills, ${events} events, none lost, none out of order, ${again} sent again; ` +
      `a device that hung was told of after ${silenceToldS} s.`
    )
  }
  const loop = name === 'agent' ? KillLoop : ManagementKillLoop
  const { created, deleted, unanswered } = await loop.run(options)
  return (
    `${kills} kills, ${created} creates and ${deleted} deletes acknowledged, ` +
    `${unanswered} under way at a kill; nothing lost, no ghosts.`
  )
}

stdout.write(`seed ${seed}\n`)
const names = ['agent', 'gateway', 'webhooks'].filter((name) => !only || name === only)
if (names.length === 0) throw new Error(`there is no loop ${only}`)
try {
  for (const name of names) {
    const report = withDeadline(runLoop(name), PATIENCE_S * 1_000, `${kills} kills of ${name}`)
    stdout.write(`\n${name}: ${await report}\n`)
  }
} catch (error) {
  process.stderr.write(`\n${(error as Error).stack}\n`)
  process.exitCode = 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exit()
