import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../base/app-error.ts'
import { parseConfig } from '../config.ts'
import type { Loss, LossRecord } from '../store/loss-record.ts'
import type { CommandContext } from './command-context.ts'

/** Where the installed services keep theirs. */
const INSTALLED = {
  'agent.db': '/var/lib/device-agent',
  'gateway.db': '/var/lib/device-gateway/gateway',
} as const

interface ConfirmOptions {
  readonly gateway?: boolean
  readonly dataDir?: string
  readonly json?: boolean
}

/** `device-agent storage …`: what may be missing from a database that was damaged. */
export function storageCommand(context: CommandContext): Command {
  const storage = new Command('storage').description('say that a damage of the database was seen')
  storage
    .command('confirm')
    .description('say that it was seen what may be missing; the status is healthy again then')
    .option('--gateway', "the gateway's database instead of the agent's")
    .option(
      '--data-dir <folder>',
      'where it lies; unset: as set for this program, or of the service',
    )
    .option('--json', 'one JSON line on stdout, and nothing else')
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
    throw new StartError(
      `There is no ${file} in ${folders.join(' or ')}: name its folder with --data-dir.`,
    )
  }
  const { refuseOnTrial } = await import('./update/refuse-on-trial.ts')
  refuseOnTrial(dirname(path))
  const losses = confirmAt(new LossRecord(path), path)
  if (json) {
    stdout.write(`${JSON.stringify({ database: path, confirmed: losses.length })}\n`)
    return
  }
  const sentence = describeLosses(losses)
  stdout.write(sentence ? `Confirmed: ${sentence}.\n` : 'There is nothing to confirm.\n')
}

function confirmAt(record: LossRecord, path: string): readonly Loss[] {
  try {
    return record.confirm()
  } catch (error) {
    const reason = error instanceof Error ? error.message : error
    throw new StartError(`The folder of ${path} cannot be changed (${reason}): try with sudo.`, {
      cause: error,
    })
  }
}
