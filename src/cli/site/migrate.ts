import { resolve } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { openProcessLog } from '../process-log.ts'
import { gatewaySurroundings } from '../surroundings.ts'

/** `device-agent gateway migrate`: a gateway that was alone becomes the first of several. */
export function migrateCommand(context: CommandContext): Command {
  return new Command('migrate')
    .description('copy the records of a single gateway to GATEWAY_DATABASE_URL')
    .option('--from <folder>', 'data directory of the gateway; default: GATEWAY_DATA_DIR')
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      '\nStop the gateway first. The database must be empty. Ids, authtokens and keys do not change. Afterwards start the\ngateway with the same data directory, which contains the CA that devices trust.',
    )
    .action(async (_options: object, self: Command) => {
      const { stdout, stderr, root } = context
      const { environment } = gatewaySurroundings(context.environment, undefined, root)
      // The command above it knows --json, too, and takes it.
      const { json = false, from } = self.optsWithGlobals<{ json?: boolean; from?: string }>()
      const { gateway, logLevel } = parseConfig(environment)
      if (!gateway.shared) {
        throw new StartError('GATEWAY_DATABASE_URL is not set. Set it to the target database.')
      }
      const { migrateSite } = await import('../../gateway/cluster/migrate-site.ts')
      const folder = from === undefined ? gateway.dataDir : resolve(from)
      const log = openProcessLog(context, logLevel)
      const { server } = gateway.shared
      const { databaseFiles, isReadableByService, unreadableText } = await import(
        '../../gateway/cluster/service-file.ts'
      )
      const rows = await migrateSite({ folder, server, log, clock: systemClock })
      stdout.write(
        json
          ? `${JSON.stringify({ from: folder, rows })}\n`
          : `Copied ${rows} rows from ${folder}.\n`,
      )
      for (const path of databaseFiles(server)) {
        if (isReadableByService(path, folder)) continue
        stderr.write(`Before the start: ${unreadableText(path, folder)}\n`)
      }
    })
}
