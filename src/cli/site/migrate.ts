import { resolve } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { openProcessLog } from '../process-log.ts'

/** `device-agent gateway migrate`: a gateway that was alone becomes the first of several. */
export function migrateCommand(context: CommandContext): Command {
  return new Command('migrate')
    .description('copy the records of a gateway that was alone into GATEWAY_DATABASE_URL')
    .option('--from <folder>', "the gateway's data folder; unset: GATEWAY_DATA_DIR")
    .option('--json', 'one JSON line on stdout, and nothing else')
    .addHelpText(
      'after',
      '\nThe gateway has to be stopped, and the database empty. Ids, authtokens and keys stay as they are. Start the gateway\nwith the same data folder afterwards: what devices trust lies in it.',
    )
    .action(async (_options: object, self: Command) => {
      const { environment, stdout } = context
      // The command above it knows --json, too, and takes it.
      const { json = false, from } = self.optsWithGlobals<{ json?: boolean; from?: string }>()
      const { gateway, logLevel } = parseConfig(environment)
      if (!gateway.shared) {
        throw new StartError(
          'GATEWAY_DATABASE_URL is not set: it says where the records are to be.',
        )
      }
      const { migrateSite } = await import('../../gateway/site/migrate-site.ts')
      const folder = from === undefined ? gateway.dataDir : resolve(from)
      const log = openProcessLog(context, logLevel)
      const { server } = gateway.shared
      const rows = await migrateSite({ folder, server, log, clock: systemClock })
      stdout.write(
        json
          ? `${JSON.stringify({ from: folder, rows })}\n`
          : `${rows} rows of ${folder} are there.\n`,
      )
    })
}
