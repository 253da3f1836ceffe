import { chownSync, existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { resetDeviceId } from '../agent/device/device-id.ts'
import { agentDatabasePath } from '../api/agent-database.ts'
import { StartError } from '../base/app-error.ts'
import { parseConfig } from '../config.ts'
import { tryLockFolder } from '../store/data-folder.ts'
import type { CommandContext } from './command-context.ts'
import { restartCommand } from './local/stopped-service.ts'
import { openProcessLog } from './process-log.ts'
import { INSTALLED, surroundingsOf } from './surroundings.ts'
import { refuseOnTrial } from './update/refuse-on-trial.ts'

export interface ResetOptions {
  readonly yes?: boolean
  readonly json?: boolean
}

/**
 * `effects` explains the reset. Throws a StartError while it is not confirmed, and where no agent has its
 * data.
 */
export function resetIdentity(
  context: CommandContext,
  { yes = false, json = false }: ResetOptions,
  effects: string,
): void {
  const { environment, source } = surroundingsOf(context.environment, undefined)
  const { dataDir } = parseConfig(environment).agent
  requireData(dataDir)
  if (!yes) {
    throw new StartError(`${effects}Nothing is changed yet. Add --yes to continue.`)
  }
  refuseOnTrial(dataDir)
  const isRunning = hasAgent(context, dataDir)
  const { before, after } = resetDeviceId(dataDir)
  giveToOwner(dataDir)
  if (json) {
    const result = { device_id: after, device_id_before: before ?? null, restart_needed: isRunning }
    context.stdout.write(`${JSON.stringify(result)}\n`)
    return
  }
  const next = isRunning
    ? `The running agent still uses the old identity. Restart it: ${restartCommand(source === INSTALLED.settings)}.\n`
    : 'The agent uses the new identity after its next start.\n'
  context.stdout.write(
    `New device id: ${after} (previous: ${before ?? 'none'}).\n${next}${effects}`,
  )
}

/** Nothing is made here: a command in a wrong folder must not leave an identity there. */
function requireData(dataDir: string): void {
  if (existsSync(agentDatabasePath(dataDir))) return
  throw new StartError(
    `No agent data found in ${dataDir}. Set AGENT_DATA_DIR to the data directory (under systemd /var/lib/device-agent).`,
  )
}

function hasAgent(context: CommandContext, dataDir: string): boolean {
  const log = openProcessLog(context, 'error')
  const lock = tryLockFolder({ folder: dataDir, owner: 'agent', log })
  lock?.release()
  return lock === undefined
}

/** The service could not read a file that belongs to root. */
function giveToOwner(dataDir: string): void {
  if (process.geteuid?.() !== 0) return
  const { uid, gid } = statSync(dataDir)
  chownSync(join(dataDir, 'device-id'), uid, gid)
}
