import { execFileSync, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { arch } from 'node:os'
import { join, resolve } from 'node:path'
import process from 'node:process'
import * as z from 'zod'
import { INSTALLED_SOCKET } from '../../api/local-socket.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { packageRoot } from '../../base/file.ts'
import { parseConfig } from '../../config.ts'
import { lockFolder, tryLockFolder } from '../../store/data-folder.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from '../local/local-agent.ts'
import { openProcessLog } from '../process-log.ts'
import { readVersion } from '../version.ts'
import { DataCopy } from './data-copy.ts'
import { type Incoming, openIncoming } from './incoming.ts'
import {
  chooseArchive,
  readStatement,
  readUpdateKeys,
  requireFitting,
  requireStated,
} from './signed-archive.ts'
import { type Candidate, Trial } from './trial.ts'
import { describeUpdate, isUnderWay } from './trial-state.ts'
import { type startOf, unpackVersion } from './unpack.ts'
import { bootId, monotonicMs, UpdateHome } from './update-home.ts'
import { type SeenStart, watchTrial } from './watch.ts'

const UNIT = 'device-agent.service'
/** What calls `settle`; where it is missing nobody would undo an update. */
const SETTLER = '/usr/lib/device-agent/bin/settle-update'
const OWNERS_KEYS = '/etc/device-agent/update-keys.pem'
const LOOK_WITHIN_MS = 2_000
const FOLLOW_EVERY_MS = 200
/** What the agent runs as has to be able to read and run what is put here. */
const UMASK = 0o022

/** What is read of `/status`. A version that is newer may say more: it must not be undone for that. */
const SeenStatus = z.object({
  started_at: z.string(),
  link: z.object({ state: z.string(), last_error: z.string().nullish() }),
  versions: z.object({ agent: z.string() }),
})

const BESIDE_PACKAGE =
  'dpkg still shows the version of the package, which stays installed. A newer package replaces this update.\n'

/** How the last update stands. */
export function show({ stdout }: CommandContext, { json = false }: { json?: boolean }): void {
  const state = new UpdateHome().state()
  stdout.write(json ? `${JSON.stringify(state ?? { state: 'none' })}\n` : describe(state))
}

/** Puts a version in place and has it tried; resolves with the verdict. Throws a StartError when it is refused. */
export async function install(
  context: CommandContext,
  path: string,
  { json = false }: { json?: boolean },
): Promise<void> {
  process.umask(UMASK)
  const { stdout, stop } = context
  const home = new UpdateHome()
  requireInstalled()
  const incoming = openIncoming(home, openProcessLog(context, 'error'))
  try {
    await requireUpdatable(context, home)
    const { from, to, toFolder } = await putInPlace(home, incoming, resolve(path))
    if (stop.aborted) throw new StartError('Stopped before the trial. Nothing was changed.')
    const text = `Version ${to} is signed and starts on this machine. The trial begins now. Without a link, ${from} is restored.`
    if (!json) stdout.write(`${text}\n`)
    trialOf(home, context).prepare({ from, to, toFolder })
  } finally {
    incoming.close()
  }
  // Whoever is here through the tunnel is cut off by the restart: the judge has to outlive that.
  const { node, main } = running()
  spawn(node, ['--disable-proto=delete', main, 'update', 'watch'], {
    detached: true,
    stdio: 'ignore',
    cwd: '/',
  }).unref()
  while (isUnderWay(home.state()) && !stop.aborted) await systemClock.sleep(FOLLOW_EVERY_MS)
  const state = home.state()
  stdout.write(json ? `${JSON.stringify(state)}\n` : describe(state))
  if (state?.state !== 'confirmed') process.exitCode = 1
}

function requireInstalled(): void {
  if (process.getuid?.() !== 0)
    throw new StartError('Updates require root. Run this command with sudo.')
  if (!existsSync(SETTLER)) {
    throw new StartError(
      'Updates require the Debian package. For other installations, unpack the new archive next to the old version.',
    )
  }
}

async function requireUpdatable(context: CommandContext, home: UpdateHome): Promise<void> {
  const state = home.state()
  if (isUnderWay(state)) {
    throw new StartError(
      `${describeUpdate(state)} If the trial does not end within three minutes, restart the agent: systemctl restart device-agent.`,
    )
  }
  const seen = await lookAtService(context)
  if (!seen?.isLinked) {
    throw new StartError(
      `The agent has no link (${seen?.problem ?? 'no response'}), so a new version cannot be tested. Run device-agent doctor.`,
    )
  }
}

/** Checks the archive, and unpacks it then. */
async function putInPlace(home: UpdateHome, incoming: Incoming, path: string): Promise<Candidate> {
  const archive = chooseArchive(path, arch())
  const keys = readUpdateKeys([join(packageRoot(), 'update-keys.pem'), OWNERS_KEYS])
  const statement = readStatement(archive, keys)
  const here = { version: readVersion(), arch: arch() }
  requireFitting(statement, here)
  const copy = await incoming.take(archive)
  await requireStated(copy, statement, archive)
  const toFolder = await unpackVersion(home, copy, statement.version)
  return { from: here.version, to: statement.version, toFolder }
}

/** As the service starts, before the agent. */
export async function settle(context: CommandContext): Promise<void> {
  process.umask(UMASK)
  const trial = trialOf(new UpdateHome(), context)
  const lock = await trial.lockForStart(systemClock)
  try {
    const said = trial.settle(() => unusedData(context))
    if (said !== undefined) context.stderr.write(`device-agent update: ${said}\n`)
  } finally {
    lock?.release()
  }
}

/** The data folder, which no command changes before the state says that it is copied. Throws a StartError. */
export function unusedData(context: CommandContext): string {
  const { dataDir } = parseConfig(context.environment).agent
  // Made by root the lock would be one that the service cannot open.
  if (existsSync(join(dataDir, 'agent.lock'))) {
    lockFolder({ folder: dataDir, owner: 'agent', log: openProcessLog(context, 'error') })
  }
  return dataDir
}

/** Restarts the service on trial, and judges it. */
export async function watch(context: CommandContext): Promise<void> {
  process.umask(UMASK)
  const home = new UpdateHome()
  await watchTrial({
    home,
    trial: trialOf(home, context),
    clock: systemClock,
    now: monotonicMs,
    look: () => lookAtService(context),
    restart: () => systemctl('--no-block', 'restart', UNIT),
    kill: () => systemctl('kill', '--signal=SIGKILL', UNIT),
  })
}

function trialOf(home: UpdateHome, context: CommandContext): Trial {
  const dataIn = (dataDir: string) => new DataCopy(dataDir)
  const log = openProcessLog(context, 'error')
  const lock = () => tryLockFolder({ folder: home.incoming, owner: 'trial', log })
  return new Trial({ home, dataIn, bootId: bootId(), now: monotonicMs, lock })
}

async function lookAtService(context: CommandContext): Promise<SeenStart | undefined> {
  const late = systemClock.sleep(LOOK_WITHIN_MS).then(() => undefined)
  const asked = new LocalAgent(INSTALLED_SOCKET, context)
    .ask({ path: '/status' }, SeenStatus)
    .then(({ started_at: startedAt, link, versions }) => ({
      version: versions.agent,
      startedAt,
      isLinked: link.state === 'up',
      problem: link.last_error ?? link.state,
    }))
    .catch(() => undefined)
  return Promise.race([asked, late])
}

function describe(state: Parameters<typeof describeUpdate>[0]): string {
  const isBeside = state?.state === 'confirmed'
  return `${describeUpdate(state)}\n${isBeside ? BESIDE_PACKAGE : ''}`
}

/** The version that judges is the one that runs before. */
function running(): ReturnType<typeof startOf> {
  return { node: process.execPath, main: join(packageRoot(), 'dist/main.js') }
}

function systemctl(...args: string[]): void {
  execFileSync('systemctl', args, { stdio: 'ignore' })
}
