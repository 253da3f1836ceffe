import { Command } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { openProcessLog } from '../process-log.ts'
import { gatewaySurroundings } from '../surroundings.ts'

const HOUR_MS = 3_600_000

/** `device-agent gateway join-token`: lets one more gateway into the site of a database. */
export function joinTokenCommand(context: CommandContext): Command {
  return new Command('join-token')
    .description('create a join token for another gateway of the cluster on GATEWAY_DATABASE_URL')
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      '\nThe token works for one gateway and for one hour. Store it in a file on the new gateway and set\nGATEWAY_JOIN_TOKEN_FILE. Run this command on the machine of an existing gateway, with sudo:\nit uses the settings of the installed service.',
    )
    .action(async (_options: object, self: Command) => {
      // The command above it knows that option, too, and takes it.
      const { json = false } = self.optsWithGlobals<{ json?: boolean }>()
      const { stdout, root } = context
      const { environment } = gatewaySurroundings(context.environment, undefined, root)
      const { gateway, logLevel } = parseConfig(environment)
      if (!gateway.shared) {
        throw new StartError(
          'GATEWAY_DATABASE_URL is not set. Only gateways with a shared database can be joined.',
        )
      }
      const { makeJoinToken } = await import('../../gateway/cluster/make-join-token.ts')
      const expiresAt = systemClock.now() + HOUR_MS
      const log = openProcessLog(context, logLevel)
      const { server } = gateway.shared
      const token = (await makeJoinToken({ server, expiresAt, log, clock: systemClock })).reveal()
      const expires_at = new Date(expiresAt).toISOString()
      stdout.write(json ? `${JSON.stringify({ token, expires_at })}\n` : `${token}\n`)
    })
}
