import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../base/app-error.ts'
import { parseConfig } from '../config.ts'
import type { Loss, LossRecord } from '../store/loss-record.ts'
import type { CommandContext } from './command-context.ts'

/** Data directories of the installed services. */
const INSTALLED = {
  'agent.db': '/var/lib/device-agent',
  'gateway.db': '/var/lib/device-gateway/gateway',
} as const

interface ConfirmOptions {
  readonly gateway?: boolean
  readonly dataDir?: string
  readonly json?: boolean
}

/** `device-agent storage …`: possible losses of a damaged database. */
export function storageCommand(context: CommandContext): Command {
  const storage = new Command('storage').description('manage database damage')
  storage
    .command('confirm')
    .description('confirm possible data loss after database damage; the status is healthy again')
    .option('--gateway', 'use the database of the gateway instead of the agent')
    .option('--data-dir <folder>', 'data directory; default: from the settings, or of the service')
    .option('--json', 'print one JSON line on stdout')
    .action((options: ConfirmOptions) => confirm(context, options))
  return storage
}

/** The file says it, not the process: so it makes no difference whether that runs. */
async function confirm(
  { environment, stdout }: CommandContext,
  options: ConfirmOptions,
): Promise<void> {
  const { describeLosses, LossRecord } = await import('../store/loss-record.ts')
  const { gateway = false, json = false } = options
  const config = parseConfig(environment)
  const { dataDir } = gateway ? config.gateway : config.agent
  const file = gateway ? 'gateway.db' : 'agent.db'
  const folders = options.dataDir === undefined ? [dataDir, INSTALLED[file]] : [options.dataDir]
  const path = folders.map((folder) => join(folder, file)).find((at) => existsSync(at))
  if (path === undefined) {
    const { isHidden, NO_ACCESS } = await import('./local/local-agent.ts')
    if (folders.some((folder) => isHidden(join(folder, file)))) throw new StartError(NO_ACCESS)
    throw new StartError(`No ${file} found in ${folders.join(' or ')}. Set --data-dir.`)
  }
  const { refuseOnTrial } = await import('./update/refuse-on-trial.ts')
  refuseOnTrial(dirname(path))
  const losses = confirmAt(new LossRecord(path), path)
  if (json) {
    stdout.write(`${JSON.stringify({ database: path, confirmed: losses.length })}\n`)
    return
  }
  const sentence = describeLosses(losses)
  stdout.write(sentence ? `Confirmed: ${sentence}.\n` : 'Nothing to confirm.\n')
}

function confirmAt(record: LossRecord, path: string): readonly Loss[] {
  try {
    return record.confirm()
  } catch (error) {
    const reason = error instanceof Error ? error.message : error
    throw new StartError(
      `Cannot change the directory of ${path} (${reason}). Run this command with sudo.`,
      {
        cause: error,
      },
    )
  }
}
