import { Command } from 'commander'
import type { CommandContext } from '../command-context.ts'

const HELP = `
What is put in place lies in /opt/device-agent, beside the Debian package, which stays as it is: dpkg
goes on naming the version of the package, and device-agent version says what runs. A package that is
installed later runs when it is newer; apt remove takes both away.`

/** Late, as in other commands: --help must not wait for it. */
const loaded = () => import('./install.ts')

/** `device-agent update …`: a version that undoes itself where it does not get a link. */
export function updateCommand(context: CommandContext): Command {
  const update = new Command('update')
    .description('put a newer signed version in place; one that gets no link in time is undone')
    .argument('[path]', 'archive, or folder with archives; left out: say how the last one went')
    .option('--json', 'one JSON line on stdout, and nothing else')
    .addHelpText('after', HELP)
    .action(async (path: string | undefined, options: { json?: boolean }) => {
      const { install, show } = await loaded()
      if (path === undefined) show(context, options)
      else await install(context, path, options)
    })
  update
    .command('settle', { hidden: true })
    .description('before each start of the service: begin a trial, or undo it')
    .action(async () => (await loaded()).settle(context))
  update
    .command('watch', { hidden: true })
    .description('restart the service on trial, and judge it')
    .action(async () => (await loaded()).watch(context))
  return update
}
