import { Command } from 'commander'
import { StartError } from '../../base/app-error.ts'
import { parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { hasAgentService, startCommand } from '../local/stopped-service.ts'
import { openProcessLog } from '../process-log.ts'
import { ProgressBar } from '../provision/progress-bar.ts'
import { gatewaySurroundings, surroundingsOf } from '../surroundings.ts'
import { refuseOnTrial } from '../update/refuse-on-trial.ts'
import { leftOutText, settingsStep } from './left-out.ts'
import type { RoleName } from './roles.ts'

interface CommonOptions {
  readonly dataDir?: string
  readonly passphraseFile?: string
  readonly json?: boolean
}

interface BackupOptions extends CommonOptions {
  readonly encrypt?: boolean
}

interface RestoreOptions extends CommonOptions {
  readonly replace?: boolean
  readonly dryRun?: boolean
}

const SUBJECT = {
  agent: 'this device: tunnels, policies, tokens and identity',
  gateway: 'this gateway: accounts, domains, keys, CA and certificates',
} as const

const CLUSTER = {
  agent: { backup: '', restore: '' },
  gateway: {
    backup: '\nIn a cluster, one backup at any gateway has the records of all.',
    restore: '\nIn a cluster, GATEWAY_DATABASE_URL must lead to an empty database.',
  },
} as const

const DATA_DIR = 'data directory; default: from the settings, or of the service'

/** `device-agent backup` and `device-agent gateway backup`. */
export function backupCommand(context: CommandContext, role: RoleName = 'agent'): Command {
  return new Command('backup')
    .description(`write a backup of ${SUBJECT[role]}`)
    .argument('<file>', 'path of the new backup')
    .option('--data-dir <folder>', DATA_DIR)
    .option('--encrypt', 'encrypt the backup with a passphrase, asked for at the terminal')
    .option(
      '--passphrase-file <file>',
      'encrypt with the passphrase in this file; - for standard input',
    )
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      `\nThe service may run. The file contains keys and tokens, and only its owner can read it.${CLUSTER[role].backup}`,
    )
    .action((file: string, _options: object, self: Command) =>
      backup(context, role, file, self.optsWithGlobals<BackupOptions>()),
    )
}

/** `device-agent restore` and `device-agent gateway restore`. */
export function restoreCommand(context: CommandContext, role: RoleName = 'agent'): Command {
  return new Command('restore')
    .description(`restore a backup of ${SUBJECT[role]}`)
    .argument('<file>', 'path of the backup')
    .option('--data-dir <folder>', DATA_DIR)
    .option(
      '--replace',
      'move existing data aside, into before-restore-<time> in the data directory',
    )
    .option('--dry-run', 'check the backup without restoring it')
    .option(
      '--passphrase-file <file>',
      'file with the passphrase; - for standard input; default: ask',
    )
    .option('--json', 'print one JSON line on stdout')
    .addHelpText(
      'after',
      `\nStop the service first. The backup is checked before anything is changed.${CLUSTER[role].restore}`,
    )
    .action((file: string, _options: object, self: Command) =>
      restore(context, role, file, self.optsWithGlobals<RestoreOptions>()),
    )
}

async function backup(
  context: CommandContext,
  roleName: RoleName,
  path: string,
  options: BackupOptions,
): Promise<void> {
  const { ROLES } = await import('./roles.ts')
  const { describeBackup, makeBackup } = await import('./make-backup.ts')
  const { folder, server, settingsRoot, config } = placeOf(context, roleName, options)
  const passphrase = await newPassphrase(context, options)
  const role = ROLES[roleName]
  const manifest = await makeBackup({ role, folder, path, passphrase, server, settingsRoot })
  const isEncrypted = passphrase !== undefined
  context.stdout.write(
    options.json
      ? `${JSON.stringify({ file: path, encrypted: isEncrypted, ...manifest })}\n`
      : describeBackup(path, manifest, isEncrypted) +
          (settingsRoot === undefined ? leftOutText(roleName, config) : ''),
  )
}

async function restore(
  context: CommandContext,
  roleName: RoleName,
  path: string,
  { replace = false, dryRun = false, json = false, ...options }: RestoreOptions,
): Promise<void> {
  const { ROLES } = await import('./roles.ts')
  const { readBackup } = await import('./backup-file.ts')
  const { describeContent } = await import('./make-backup.ts')
  const { checkBackup, restoreBackup } = await import('./restore-backup.ts')
  const { askPassphrase, readPassphrase } = await import('./passphrase.ts')
  const role = ROLES[roleName]
  const given = options.passphraseFile
  const read = await readBackup(path, () =>
    given === undefined ? askPassphrase(context, { isNew: false }) : readPassphrase(given),
  )
  const { manifest } = read
  const said = (result: object, text: string) =>
    context.stdout.write(json ? `${JSON.stringify(result)}\n` : text)
  if (dryRun) {
    await checkBackup(role, read)
    const result = { file: path, restored: false, encrypted: read.isEncrypted, ...manifest }
    said(result, `${path} is sound: ${describeContent(manifest)}. Nothing was changed.\n`)
    return
  }
  const { folder, server, settingsRoot, log } = placeOf(context, roleName, options)
  if (roleName === 'agent') refuseOnTrial(folder)
  let bar: ProgressBar | undefined
  const onProgress = (done: number, of: number) => {
    bar ??= new ProgressBar({ stream: context.stderr, total: of })
    bar.show(done, 'records')
  }
  const where = { folder, server, settingsRoot, onProgress, log }
  const { aside, settings, keptSettings } = await restoreBackup({
    role,
    backup: read,
    replace,
    ...where,
  }).finally(() => bar?.clear())
  const result = {
    file: path,
    restored: true,
    data_dir: folder,
    previous_data: aside ?? null,
    settings,
    ...(server && { kept_settings: keptSettings }),
  }
  const step = settingsRoot === undefined ? settingsStep(roleName, context.environment) : ''
  const kept =
    aside === undefined ? '' : `The previous data is in ${aside}. Delete it when all is well.\n`
  const written = settings.length === 0 ? '' : `Restored settings: ${settings.join(', ')}.\n`
  said(
    { ...result, encrypted: read.isEncrypted, ...manifest },
    `Restored ${describeContent(manifest)} to ${folder}.\n${written}${kept}${server ? nextOfCluster(keptSettings) : `Next: ${step}${NEXT[roleName](settingsRoot !== undefined)}`}\n`,
  )
}

const NEXT = {
  agent: (isService: boolean) => {
    const start =
      isService || hasAgentService() ? 'systemctl enable --now device-agent' : startCommand(false)
    return `If this is another machine, stop the agent on the old device, because both have the same identity and the second one is refused as a duplicate. Start this one: ${start}.`
  },
  gateway: () =>
    'If this is another machine, stop the gateway on the old server, and point its DNS name at this one. Start it: device-agent service install --gateway.',
} as const

function nextOfCluster(kept: readonly string[]): string {
  const own = kept.length === 0 ? '' : `This server keeps its own ${kept.join(', ')}. `
  return `Next: ${own}Start this gateway (device-agent service install --gateway), then join the others with an empty data directory and a new token: device-agent gateway join-token.`
}

async function newPassphrase(context: CommandContext, { encrypt, passphraseFile }: BackupOptions) {
  const { askPassphrase, readPassphrase, requireStrong } = await import('./passphrase.ts')
  if (passphraseFile !== undefined) return requireStrong(await readPassphrase(passphraseFile))
  if (!encrypt) return undefined
  const asked = await askPassphrase(context, { isNew: true })
  if (asked) return asked
  throw new StartError('There is no terminal to ask for a passphrase. Set --passphrase-file.')
}

function placeOf(context: CommandContext, role: RoleName, { dataDir }: CommonOptions) {
  const surroundings = role === 'agent' ? surroundingsOf : gatewaySurroundings
  const { environment, source } = surroundings(context.environment, dataDir)
  const config = parseConfig(environment)
  return {
    config,
    folder: config[role].dataDir,
    server: role === 'gateway' ? config.gateway.shared?.server : undefined,
    // Only of an installed service: other programs get their settings from elsewhere.
    settingsRoot: source === 'environment' ? undefined : '/',
    log: openProcessLog(context, 'error'),
  }
}
