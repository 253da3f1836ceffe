import { chownSync, existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { Command } from 'commander'
import { resetDeviceId } from '../agent/device-id.ts'
import { agentDatabasePath } from '../api/agent-database.ts'
import { StartError } from '../base/app-error.ts'
import { parseConfig } from '../config.ts'
import { tryLockFolder } from '../store/folder-lock.ts'
import type { CommandContext } from './command-context.ts'
import { openProcessLog } from './process-log.ts'

const WHAT_HAPPENS = `The device gets an identity of its own, so that it is no copy of another one any more. Do this on the copy,
not on the device that it was copied from.
Its tunnels and AGENT_DOMAIN stay as they are. Those names belong to the other device while that is online,
and are refused here as a conflict: give this device names of its own, by PUT and DELETE /tunnels and in AGENT_DOMAIN.
The tokens of its API are copies, too: rotate them (device-agent token rotate).
`

interface ResetOptions {
  readonly yes?: boolean
  readonly json?: boolean
}

/** `device-agent identity …`: which device this is to the service. */
export function identityCommand(context: CommandContext): Command {
  const identity = new Command('identity').description('which device this is to the service')
  identity
    .command('reset')
    .description('make this device another one, after its data folder was copied')
    .option('--yes', 'do it; without it, only what it means is told')
    .option('--json', 'one JSON line on stdout, and nothing else')
    .addHelpText('after', `\n${WHAT_HAPPENS}`)
    .action((options: ResetOptions) => reset(context, options))
  return identity
}

function reset(context: CommandContext, { yes = false, json = false }: ResetOptions): void {
  const { dataDir } = parseConfig(context.environment).agent
  requireData(dataDir)
  if (!yes) {
    throw new StartError(`${WHAT_HAPPENS}Nothing is changed yet: add --yes to do it.`)
  }
  const isRunning = hasAgent(context, dataDir)
  const { before, after } = resetDeviceId(dataDir)
  giveToOwner(dataDir)
  if (json) {
    const result = { device_id: after, device_id_before: before ?? null, restart_needed: isRunning }
    context.stdout.write(`${JSON.stringify(result)}\n`)
    return
  }
  const next = isRunning
    ? 'The agent runs with the old identity: restart it (systemctl restart device-agent).\n'
    : 'The agent has it from its next start on.\n'
  context.stdout.write(
    `This device is ${after} now, it was ${before ?? 'none'}.\n${next}${WHAT_HAPPENS}`,
  )
}

/** Nothing is made here: a command in a wrong folder must not leave an identity there. */
function requireData(dataDir: string): void {
  if (existsSync(agentDatabasePath(dataDir))) return
  throw new StartError(
    `No agent has its data in ${dataDir}: go to its folder, or set AGENT_DATA_DIR to it (under systemd /var/lib/device-agent).`,
  )
}

function hasAgent(context: CommandContext, dataDir: string): boolean {
  const log = openProcessLog(context, 'error')
  const lock = tryLockFolder({ folder: dataDir, owner: 'agent', log })
  lock?.release()
  return lock === undefined
}

/** A file of root in the folder of a service would be one that the service cannot read. */
function giveToOwner(dataDir: string): void {
  if (process.geteuid?.() !== 0) return
  const { uid, gid } = statSync(dataDir)
  chownSync(join(dataDir, 'device-id'), uid, gid)
}
