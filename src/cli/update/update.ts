import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'

const HELP = `
The update is installed in /opt/device-agent. The Debian package stays unchanged: dpkg shows the version
of the package, device-agent version shows the running version. A newer package replaces the update.
apt remove deletes both.`

/** Late, as in other commands: --help must not wait for it. */
const loaded = () => import('./install.ts')

/** `device-agent update …`: a version that undoes itself where it does not get a link. */
export function updateCommand(context: CommandContext): Command {
  const update = new Command('update')
    .description('install a newer signed version, and roll back if it gets no link in time')
    .argument(
      '[path]',
      'archive or folder with archives; default: show the result of the last update',
    )
    .option('--json', 'print one JSON line on stdout')
    .addHelpText('after', HELP)
    .action(async (path: string | undefined, options: { json?: boolean }) => {
      const { install, show } = await loaded()
      if (path === undefined) show(context, options)
      else await install(context, path, options)
    })
  update
    .command('settle', { hidden: true })
    .description('begin or roll back a trial before each start of the service')
    .action(async () => (await loaded()).settle(context))
  update
    .command('watch', { hidden: true })
    .description('restart the service for a trial and decide the result')
    .action(async () => (await loaded()).watch(context))
  return update
}
