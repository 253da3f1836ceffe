import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { syncFolder } from '../../base/file.ts'
import { agentDataDir } from '../../config.ts'
import { type FolderLock, tryLockFolder } from '../../store/data-folder.ts'
import type { CommandContext } from '../command-context.ts'
import { askYes, canAsk } from '../local/prompt.ts'
import { openProcessLog } from '../process-log.ts'
import { removeDurably } from '../service/handover-file.ts'
import { systemctl } from '../service/service.ts'
import { JOINED_ENV } from '../surroundings.ts'
import { despiteHangup } from './despite-hangup.ts'
import { placeOf, requireRoot } from './join-device.ts'
import { type Belonging, belongingOf, folderPlace, planLeave, writeInto } from './join-place.ts'
import { JoinRecord } from './join-record.ts'

const UNIT = 'device-agent'
/** The service manager links the first to the second. */
const SERVICE_DATA = ['/var/lib/private/device-agent', '/var/lib/device-agent']
const LOCK = 'agent.lock'
/** In the data directory, but not of the agent: the data of a gateway, and a folder of the file system. */
const NOT_OF_AGENT = new Set(['gateway', 'lost+found'])

/** The options of the command line. */
export interface LeaveOptions {
  readonly yes?: boolean
  readonly purge?: boolean
  readonly json?: boolean
}

/** Runs the command. A second run finds nothing to do. */
export async function leaveGateway(context: CommandContext, options: LeaveOptions): Promise<void> {
  const { stdout, environment, root = '/' } = context
  const { purge = false, json = false } = options
  const found = placeOf(context)
  const { isInstalled } = found
  const dataDir = agentDataDir(environment)
  const isMounted = environment.SVC_JOIN_FILE !== undefined && !isInstalled
  const place = isMounted ? folderPlace(join(dataDir, JOINED_ENV), dataDir) : found.place
  if (isInstalled) requireRoot('disconnect')
  const belonging = belongingOf(place)
  const folders = isInstalled ? SERVICE_DATA.map((it) => join(root, it)) : [dataDir]
  const data = purge ? folders.filter((folder) => dataIn(folder).length > 0) : []
  const changes = planLeave(place)
  if (changes.length === 0 && data.length === 0) {
    stdout.write(json ? `${JSON.stringify({ left: null, name: null })}\n` : NOTHING)
    return
  }
  const { name } = new JoinRecord(place).joined ?? { name: undefined }
  await requireYes(context, belonging, options)
  await despiteHangup(context, async () => {
    if (isInstalled) systemctl(['disable', '--now', UNIT])
    const lock = isInstalled ? undefined : lockStopped(context, dataDir)
    try {
      for (const { path, text, mode } of changes) {
        if (text === undefined) removeDurably(path)
        else writeInto(place, { path, text, mode })
      }
      for (const folder of data) purgeData(folder)
    } finally {
      lock?.release()
    }
  })
  if (json) {
    const result = { left: belonging?.gateway ?? null, name: name ?? null, purged: purge }
    stdout.write(`${JSON.stringify(result)}\n`)
    return
  }
  stdout.write(leftText(belonging, name, { folders, isPurged: purge, isInstalled }))
}

const NOTHING = 'This device belongs to no gateway. Nothing was changed.\n'

async function requireYes(
  context: CommandContext,
  belonging: Belonging | undefined,
  { yes, purge }: LeaveOptions,
): Promise<void> {
  if (yes) return
  const gateway = belonging ? `This device leaves ${belonging.gateway}` : 'The data is deleted'
  const fact = `${gateway}: its tunnels go offline${purge ? ', and all its data is deleted' : ''}.`
  if (!canAsk()) throw new StartError(`${fact} Add --yes to continue.`)
  if (!(await askYes(context, `${fact} Continue?`))) {
    throw new StartError('Cancelled. Nothing was changed.')
  }
}

/** A running agent would go on with its old settings. No agent starts until the lock is released. */
function lockStopped(context: CommandContext, dataDir: string): FolderLock | undefined {
  if (!existsSync(dataDir)) return undefined
  const log = openProcessLog(context, 'error')
  const lock = tryLockFolder({ folder: dataDir, owner: 'agent', log })
  if (lock) return lock
  throw new StartError(`The agent that uses ${dataDir} is running. Stop it first.`)
}

/** Names of the agent's files in its data directory, in the order of a purge. */
function dataIn(folder: string): string[] {
  if (!existsSync(folder)) return []
  const names = namesIn(folder).filter((name) => !NOT_OF_AGENT.has(name))
  // An interrupted restore begins with a dot, and would bring data back. The lock keeps agents away until the end.
  const [locks, others] = [names.filter((it) => it === LOCK), names.filter((it) => it !== LOCK)]
  return [...others.sort(), ...locks]
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read the data directory ${folder} (${code}).`, { cause: error })
  }
}

/** Deletes the data, and keeps the directory: in a container, it is a mount point. Throws a StartError. */
function purgeData(folder: string): void {
  for (const path of dataIn(folder).map((name) => join(folder, name))) {
    try {
      rmSync(path, { recursive: true, force: true })
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      throw new StartError(
        `Cannot delete ${path} (${code}). The device has left its gateway, but this data is still there. Unmount it or make it writable. Then run this command again.`,
        { cause: error },
      )
    }
  }
  syncFolder(folder)
}

function leftText(
  belonging: Belonging | undefined,
  name: string | undefined,
  {
    folders,
    isPurged,
    isInstalled,
  }: {
    readonly folders: readonly string[]
    readonly isPurged: boolean
    readonly isInstalled: boolean
  },
): string {
  const service = isInstalled ? ' The service is stopped and disabled.' : ''
  const revoked =
    name === undefined
      ? 'its authtoken in the console, or with DELETE /credentials/{id}'
      : `the device there with device-agent gateway revoke ${name}`
  return [
    belonging ? `This device has left ${belonging.gateway}.${service}` : `Done.${service}`,
    // The protocol of agents has no such request, and a device has no rights in the management API.
    ...(belonging ? [`The gateway still knows it: revoke ${revoked}.`] : []),
    isPurged
      ? 'All data of the agent was deleted.'
      : `Tunnels, API tokens and identity stay in ${folders.at(-1)}. Delete them with --purge.`,
    'To connect again: device-agent join',
    '',
  ].join('\n')
}
