import { execFileSync } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import { Command, InvalidArgumentError, Option } from 'commander'
import { isAuthtoken } from '../../agent/authtoken-source.ts'
import { StartError } from '../../base/app-error.ts'
import { packageRoot } from '../../base/file.ts'
import { Secret } from '../../base/secret.ts'
import type { CommandContext } from '../command-context.ts'
import { lineWithCredential } from '../local/unpassed-credential.ts'
import type { ServiceName } from './env-template.ts'
import { isSameFile, readHandover, removeDurably } from './handover-file.ts'
import {
  applyChanges,
  type FileChange,
  planInstall,
  planUninstall,
  type ServiceLayout,
  settingsPathOf,
} from './service-files.ts'
import { describeServiceStatus, readServiceStatus, STATUS_PROPERTIES } from './service-status.ts'

interface Target {
  readonly root: string
  readonly gateway?: boolean
}

interface InstallOptions extends Target {
  readonly dryRun?: boolean
  readonly tokenStdin?: boolean
  readonly envFile?: string
}

/** `device-agent service …`: from a bare Debian device to a running service, and back. */
export function serviceCommand(context: CommandContext): Command {
  const service = new Command('service').description(
    'install, remove or inspect the systemd service',
  )
  const subcommand = (name: string, description: string) =>
    service
      .command(name)
      .description(description)
      .option('--gateway', 'use the gateway service instead of the agent service')
      .addOption(
        new Option('--root <folder>', 'root directory of the system, to build an image')
          .default('/')
          .argParser(absoluteFolder),
      )

  subcommand('install', 'install unit, settings and authtoken, and start the service')
    .option('--dry-run', 'show the changes without making them')
    .option('--token-stdin', 'read the authtoken from standard input')
    .addOption(
      new Option(
        '--env-file <file>',
        'import a file of device-agent provision, store its authtoken as a credential, and delete the file',
      ).conflicts(['gateway', 'tokenStdin']),
    )
    .action((options: InstallOptions, command: Command) => {
      if (options.gateway && options.tokenStdin) {
        command.error('error: --token-stdin is only for the agent')
      }
      return install(context, options)
    })
  subcommand('uninstall', 'stop the service and remove its unit; keep settings and data')
    .option('--dry-run', 'show the changes without making them')
    .action((options: InstallOptions) => uninstall(context, options))
  subcommand('status', 'show the state of the service in one line')
    .option('--json', 'print one JSON line')
    .action((options: Target & { json?: boolean }) => status(context, options))
  return service
}

/** `device-agent gateway status`: another name of `service status --gateway`. */
export function gatewayStatusCommand(context: CommandContext): Command {
  return new Command('status')
    .description('show the state of the gateway service in one line')
    .option('--json', 'print one JSON line')
    .action((_options: object, self: Command) => {
      // The command above it knows --json, too, and takes it.
      const { json } = self.optsWithGlobals<{ json?: boolean }>()
      status(context, { root: '/', gateway: true, json: json ?? false })
    })
}

async function install({ stdout }: CommandContext, options: InstallOptions): Promise<void> {
  const name = nameOf(options)
  const handed = options.envFile === undefined ? undefined : readHandover(options.envFile)
  const authtoken = options.tokenStdin
    ? new Secret((await text(process.stdin)).trim())
    : handed?.authtoken
  if (authtoken && !handed && !isAuthtoken(authtoken.reveal())) {
    throw new StartError(
      'Standard input contains no authtoken. Pipe an authtoken in, or omit --token-stdin.',
    )
  }
  const settingsPath = join(options.root, settingsPathOf(name))
  const isInPlace = options.envFile !== undefined && isSameFile(options.envFile, settingsPath)
  const layout = {
    ...{ root: options.root, name, authtoken },
    // Its own settings stay as the owner has written them, but for the authtoken.
    settings: isInPlace ? {} : handed?.settings,
  }
  const { root, envFile, dryRun } = options
  const changes = installFiles(stdout, layout, dryRun)
  const isTarget = changes.some(
    ({ path }) => envFile !== undefined && isSameFile(envFile, join(root, path)),
  )
  if (envFile !== undefined && !isTarget) removeHandover(stdout, envFile, dryRun)
  startInstalled(stdout, layout, changes, { dryRun: dryRun ?? false })
}

type Installation = Omit<ServiceLayout, 'node' | 'main'>

/** Changes that an install of this program makes. Throws a StartError if the service could not start it. */
export function planFiles(installation: Installation): FileChange[] {
  const node = process.execPath
  const main = join(realpathSync(packageRoot()), 'dist/main.js')
  refuseHomeFolders([node, main])
  return planInstall({ ...installation, node, main })
}

/** Writes the files of a service, and reports each. Throws a StartError without systemd. */
export function installFiles(
  stdout: NodeJS.WritableStream,
  installation: Installation,
  dryRun = false,
): FileChange[] {
  const changes = planFiles(installation)
  // Before anything is written: a machine without systemd is left as it was.
  if (isLive(installation) && !dryRun) systemctl(['show', '--property=Version'], installation.name)
  writeFiles(stdout, installation, changes, dryRun)
  return changes
}

/** Carries out changes, and reports each. */
export function writeFiles(
  stdout: NodeJS.WritableStream,
  { root }: Pick<Installation, 'root'>,
  changes: readonly FileChange[],
  dryRun = false,
): void {
  if (!dryRun) applyChanges(root, changes)
  report(stdout, changes, dryRun)
}

/**
 * Enables and starts a service. Restarts it if its files have changed, now or earlier (`isOutdated`).
 */
export function startInstalled(
  stdout: NodeJS.WritableStream,
  { root, name }: Pick<Installation, 'root' | 'name'>,
  changes: readonly FileChange[],
  { dryRun = false, isOutdated = false }: { dryRun?: boolean; isOutdated?: boolean } = {},
): void {
  const units = unitsOf(name)
  const socket = changes.find(({ path }) => path.endsWith('.socket'))
  const start =
    isOutdated || (socket && socket.kind !== 'keep')
      ? // A socket unit cannot change where it listens while its service holds the sockets.
        [
          ['stop', ...units],
          ['start', ...units],
        ]
      : [[changes.some(({ kind }) => kind !== 'keep') ? 'restart' : 'start', name]]
  const commands = isLive({ root })
    ? [['daemon-reload'], ['enable', ...units], ...start]
    : [['--root', root, 'enable', ...units]]
  runSystemctl(stdout, commands, dryRun)
}

/** Whether systemd runs on this machine. */
export function hasSystemd(): boolean {
  try {
    systemctl(['show', '--property=Version'])
    return true
  } catch {
    return false
  }
}

/** Everything in the handover file is installed now, so the token in it must not stay. */
function removeHandover(stdout: NodeJS.WritableStream, path: string, dryRun = false): void {
  stdout.write(`${(dryRun ? 'would remove' : 'remove').padEnd(12)} ${path}\n`)
  if (!dryRun) removeDurably(path)
}

function uninstall({ stdout }: CommandContext, options: InstallOptions): void {
  const name = nameOf(options)
  const changes = planUninstall({ root: options.root, name })
  if (changes.length === 0) {
    const isPackaged = existsSync(join(options.root, `/usr/lib/systemd/system/${name}.service`))
    if (isPackaged) {
      throw new StartError(
        `The unit of ${name} belongs to the Debian package. To stop the service: sudo systemctl disable --now ${unitsOf(name).join(' ')}. To remove the package: sudo apt remove device-agent.`,
      )
    }
    stdout.write(`${name} is not installed.\n`)
    return
  }
  const before = isLive(options)
    ? [['disable', '--now', ...unitsOf(name)]]
    : [['--root', options.root, 'disable', ...unitsOf(name)]]
  runSystemctl(stdout, before, options.dryRun)
  report(stdout, changes, options.dryRun)
  if (!options.dryRun) applyChanges(options.root, changes)
  if (isLive(options)) runSystemctl(stdout, [['daemon-reload']], options.dryRun)
  stdout.write('Settings, authtoken and data are kept.\n')
}

function status({ stdout }: CommandContext, options: Target & { json?: boolean }): void {
  const name = nameOf(options)
  const output = shownBySystemd(name)
  const shown = readServiceStatus(name, output)
  const credential = join(options.root, '/etc/credstore/svc-authtoken')
  const status = { ...shown, status: lineWithCredential(shown.status, credential) }
  stdout.write(`${options.json ? JSON.stringify(status) : describeServiceStatus(status)}\n`)
  if (!status.active) process.exitCode = 1
}

function shownBySystemd(name: ServiceName): string {
  try {
    return systemctl(['show', name, '--no-pager', `--property=${STATUS_PROPERTIES.join(',')}`])
  } catch (error) {
    if (!(error instanceof NoSystemdError)) throw error
    throw new StartError(
      `${WITHOUT_SYSTEMD}, so there is no service. Run ${BY_HAND[name].check} for the ${name.replace('device-', '')}.`,
      { cause: error },
    )
  }
}

const nameOf = ({ gateway }: Target): ServiceName => (gateway ? 'device-gateway' : 'device-agent')
/** Units for systemctl to enable, sockets first. With a socket unit, the suffix is needed. */
const unitsOf = (name: ServiceName) =>
  name === 'device-gateway' ? [`${name}.socket`, `${name}.service`] : [name]
const isLive = ({ root }: Pick<Target, 'root'>) => root === '/'

function absoluteFolder(path: string): string {
  if (path.startsWith('/')) return path
  throw new InvalidArgumentError('Use an absolute path.')
}

/** The unit hides home folders from the service, so a program in one could never start. */
function refuseHomeFolders(paths: readonly string[]): void {
  const hidden = paths.find((path) => /^\/(home|root|run\/user)\//.test(path))
  if (hidden === undefined) return
  throw new StartError(
    `The service cannot start ${hidden}, because it has no access to home directories. ` +
      'Install Node.js and device-agent outside home directories, for example in /usr/lib.',
  )
}

function report(stdout: NodeJS.WritableStream, changes: readonly FileChange[], dryRun = false) {
  for (const { kind, path, mode } of changes) {
    const verb = dryRun && kind !== 'keep' ? `would ${kind}` : kind
    stdout.write(`${verb.padEnd(12)} ${path}${mode === 0 ? '' : ` (${mode.toString(8)})`}\n`)
  }
}

function runSystemctl(
  stdout: NodeJS.WritableStream,
  commands: readonly (readonly string[])[],
  dryRun = false,
): void {
  for (const command of commands) {
    stdout.write(`${(dryRun ? 'would run' : 'run').padEnd(12)} systemctl ${command.join(' ')}\n`)
    if (!dryRun) systemctl(command)
  }
}

const WITHOUT_SYSTEMD = 'systemd is not running on this machine'
const BY_HAND = {
  'device-agent': { run: 'device-agent run', check: 'device-agent status' },
  'device-gateway': { run: 'device-agent gateway', check: 'device-agent health --gateway' },
} as const

/** Says how to run a service on a machine without systemd. */
class NoSystemdError extends StartError {
  constructor(name: ServiceName, options: ErrorOptions) {
    const { run, check } = BY_HAND[name]
    super(
      `${WITHOUT_SYSTEMD}. Start ${run} with another supervisor, and check it with ${check}. To build an image, use --root.`,
      options,
    )
  }
}

/** Runs systemctl. Throws a StartError with its reason, or without systemd. */
export function systemctl(command: readonly string[], name: ServiceName = 'device-agent'): string {
  try {
    return execFileSync('systemctl', command, {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  } catch (error) {
    const {
      code,
      signal,
      stderr = '',
    } = error as NodeJS.ErrnoException & {
      readonly signal?: string
      readonly stderr?: string
    }
    // Its terminal has closed, and this process goes on. systemctl may not have told systemd.
    if (signal === 'SIGHUP') return systemctl(command, name)
    if (code === 'ENOENT' || /booted with systemd|connect to (system scope )?bus/i.test(stderr)) {
      throw new NoSystemdError(name, { cause: error })
    }
    const reason = stderr.trim().replace(/\.$/, '')
    const isRefused = /access denied|permission denied|authentication required/i.test(reason)
    const remedy = isRefused ? ' Run this command with sudo.' : ''
    throw new StartError(`systemctl ${command.join(' ')} failed: ${reason}.${remedy}`, {
      cause: error,
    })
  }
}
