import { execFileSync, spawn } from 'node:child_process'
import { constants, createWriteStream, existsSync, rmSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { arch } from 'node:os'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { pipeline } from 'node:stream/promises'
import * as z from 'zod'
import { INSTALLED_SOCKET } from '../../api/local-socket.ts'
import { StartError } from '../../base/app-error.ts'
import { type Clock, systemClock } from '../../base/clock.ts'
import { makeFolder, packageRoot } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import { parseConfig } from '../../config.ts'
import { lockFolder, tryLockFolder } from '../../store/data-folder.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from '../local/local-agent.ts'
import { openProcessLog } from '../process-log.ts'
import { readVersion } from '../version.ts'
import { DataCopy } from './data-copy.ts'
import {
  chooseArchive,
  MAX_ARCHIVE_BYTES,
  readStatement,
  readUpdateKeys,
  requireFitting,
  requireStated,
} from './signed-archive.ts'
import { type Candidate, Trial } from './trial.ts'
import { describeUpdate, isUnderWay } from './trial-state.ts'
import { type startOf, unpackVersion } from './unpack.ts'
import { bootId, monotonicMs, UpdateHome } from './update-home.ts'

const BEFORE_A_TRIAL: ReadonlySet<string | undefined> = new Set(['prepared', 'copying'])
const POLL_MS = 500
/** Time to detect a version that starts well and then dies. */
const STEADY_MS = 10_000
/** The drain of the version before, and the copy of its data. */
const BEGIN_WITHIN_MS = 150_000
/** For the start that undoes it. */
const UNDO_WITHIN_MS = 60_000

/** Status of the running agent; undefined without an answer. */
export interface SeenStart {
  readonly version: string
  readonly startedAt: string
  readonly isLinked: boolean
  /** Why it is not linked, as the end of a sentence. */
  readonly problem: string
}

interface WatchOptions {
  readonly home: UpdateHome
  readonly trial: Trial
  readonly clock: Clock
  /** Milliseconds of the machine's monotonic clock, as the trial has them. */
  readonly now: () => number
  readonly look: () => Promise<SeenStart | undefined>
  /** Begins a start of the service that `settle` comes before. */
  readonly restart: () => void
  /** Kills the service at once; it is started again. */
  readonly kill: () => void
}

/** Has the prepared version tried and judges it; resolves when there is a verdict. */
export async function watchTrial(options: WatchOptions): Promise<void> {
  const { home, trial, restart, kill } = options
  try {
    restart()
  } catch {
    trial.abandon('cannot restart the service')
    return
  }
  const hasBegun = () => !BEFORE_A_TRIAL.has(home.state()?.state)
  if (!(await until(options, BEGIN_WITHIN_MS, hasBegun))) {
    trial.abandon('the service did not restart')
    return
  }
  const reason = await judge(options)
  if (reason === undefined) return
  if (!trial.blame(reason)) return
  // A process that hangs would not stop when it is asked to.
  kill()
  await until(options, UNDO_WITHIN_MS, () => !isUnderWay(home.state()))
}

/** Undefined when the state says all; else why it is to be undone. */
async function judge({ home, trial, clock, now, look }: WatchOptions): Promise<string | undefined> {
  let steady: { readonly startedAt: string; readonly sinceMs: number } | undefined
  let problem = 'the new version was not ready in time'
  for (;;) {
    const state = home.state()
    if (state?.state !== 'trying') return undefined
    const seen = await look()
    const isOther = seen !== undefined && seen.version !== state.to
    if (isOther) problem = `version ${seen.version} was started instead`
    else if (seen) problem = `the new version had no link in time (${seen.problem})`
    if (!seen?.isLinked || isOther) steady = undefined
    else if (steady?.startedAt !== seen.startedAt) {
      steady = { startedAt: seen.startedAt, sinceMs: now() }
    } else if (now() - steady.sinceMs >= STEADY_MS) {
      trial.confirm()
      return undefined
    }
    if (now() >= state.untilMs) return problem
    await clock.sleep(POLL_MS)
  }
}

async function until(
  { clock, now }: WatchOptions,
  withinMs: number,
  isTrue: () => boolean,
): Promise<boolean> {
  const endMs = now() + withinMs
  while (!isTrue()) {
    if (now() >= endMs) return false
    await clock.sleep(POLL_MS)
  }
  return true
}

/** Place of an archive during its check: only for root, and for one update at a time. */
interface Incoming {
  /** Copies an archive to a path that no other user can change, and returns the path. Throws a StartError. */
  copyIn(archive: string): Promise<string>
  /** Removes the copy, and allows the next update. */
  close(): void
}

/** Removes leftovers of a killed update. Throws a StartError while another update runs. */
export function openIncoming(
  home: UpdateHome,
  log: Logger,
  maxBytes: number = MAX_ARCHIVE_BYTES,
): Incoming {
  makeFolder(home.path, 0o755)
  const folder = home.incoming
  const lock = tryLockFolder({ folder, owner: 'update', log })
  if (!lock) throw new StartError('Another update is in progress. Wait until it ends.')
  const path = join(folder, 'archive.tar.gz')
  rmSync(path, { force: true })
  home.removeUnfinished()
  return {
    copyIn: async (archive) => {
      try {
        await copyStart(archive, path, maxBytes)
      } catch (error) {
        const { code, message } = error as NodeJS.ErrnoException
        const reason = code === 'ENOSPC' ? 'no space left on the disk' : message
        throw new StartError(`Cannot copy ${archive}: ${reason}. Nothing was changed.`, {
          cause: error,
        })
      }
      return path
    },
    close: () => {
      rmSync(path, { force: true })
      lock.release()
    },
  }
}

/** Copies at most the size of the signed archive: the file may have changed since the check. */
async function copyStart(from: string, to: string, bytes: number): Promise<void> {
  // Does not wait for a pipe without a writer.
  const source = await open(from, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const start = source.createReadStream({ end: bytes, autoClose: false })
    await pipeline(start, createWriteStream(to, { mode: 0o600 }))
  } finally {
    await source.close()
  }
}

const UNIT = 'device-agent.service'
/** The program that calls `settle`. Without it, an update could not be rolled back. */
const SETTLER = '/usr/lib/device-agent/bin/settle-update'
const OWNERS_KEYS = '/etc/device-agent/update-keys.pem'
const PROBE_WITHIN_MS = 2_000
const FOLLOW_EVERY_MS = 200
/** The user of the agent has to read and run the installed files. */
const UMASK = 0o022

/** The used fields of `/status`. A newer version may return more fields; that is no reason for a rollback. */
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
  // The restart may cut the connection of the caller, which may come through a tunnel. The judging process
  // has to outlive it.
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
      'Updates require the Debian package. In a clone, run git pull, npm ci and npm run build. Of an archive, unpack the new version next to the old one. Then restart the agent.',
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
  const copy = await incoming.copyIn(archive)
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
  // The service could not open a lock file that belongs to root.
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
  const late = systemClock.sleep(PROBE_WITHIN_MS).then(() => undefined)
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

/** The running version judges the new version. */
function running(): ReturnType<typeof startOf> {
  return { node: process.execPath, main: join(packageRoot(), 'dist/main.js') }
}

function systemctl(...args: string[]): void {
  execFileSync('systemctl', args, { stdio: 'ignore' })
}
