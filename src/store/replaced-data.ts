import {
  existsSync,
  lchownSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import * as z from 'zod'
import { StartError } from '../base/app-error.ts'
import { makeFolder, syncFolder, writeFileDurably } from '../base/file.ts'

/**
 * Replaces the files of a data directory, so that a power cut at any point leaves all old files or all new files.
 *
 * The new files are first written into a folder inside the data directory. The name of that folder is the state:
 *
 * | state     | meaning                                   | after a cut                    |
 * |-----------|-------------------------------------------|--------------------------------|
 * | `filling` | new files are incomplete, or rest is left | deleted                        |
 * | `ready`   | new files are complete, old ones in place | goes on: moves old files aside |
 * | `cleared` | old files are aside                       | goes on: moves new files in    |
 *
 * A folder that is renamed as a whole would not do: a data directory may be a mount point, or belong to systemd.
 */
const PREFIX = '.replacement'
const STATES = {
  filling: `${PREFIX}.filling`,
  ready: `${PREFIX}.ready`,
  cleared: `${PREFIX}.cleared`,
}
const PLAN = 'plan.json'

/** A plain name: a plan must not lead out of its folder. */
const NameSchema = z.string().regex(/^(?!\.{1,2}$)[^/\0]+$/)
const PlanSchema = z.strictObject({
  /** Files and folders to move aside. */
  old: z.array(NameSchema),
  /** New folder with the old files. */
  aside: NameSchema,
})
type Plan = z.infer<typeof PlanSchema>

export interface Replacement extends Plan {
  /** The data directory. The caller holds its lock. */
  readonly folder: string
  /** Writes the new files into an empty folder. If this throws, nothing is changed. */
  readonly fill: (folder: string) => void | Promise<void>
}

/** Throws errors of the system and of `fill`. The old files are unchanged then. */
export async function replaceData(replacement: Replacement): Promise<void> {
  const { folder, old, aside, fill } = replacement
  const filling = join(folder, STATES.filling)
  rmSync(filling, { recursive: true, force: true })
  try {
    makeFolder(join(filling, 'old'))
    makeFolder(join(filling, 'new'))
    await fill(join(filling, 'new'))
    const plan: Plan = PlanSchema.parse({ old, aside })
    writeFileDurably(join(filling, PLAN), JSON.stringify(plan))
    settle(filling, statSync(folder))
  } catch (error) {
    rmSync(filling, { recursive: true, force: true })
    throw error
  }
  renameSync(filling, join(folder, STATES.ready))
  syncFolder(folder)
  finishReplacement(folder)
}

/**
 * Finishes a replacement that a power cut has interrupted. The caller holds the lock of the folder. Throws a
 * StartError.
 */
export function finishReplacement(folder: string): void {
  const [filling, ready, cleared] = [STATES.filling, STATES.ready, STATES.cleared].map((state) =>
    join(folder, state),
  ) as [string, string, string]
  if (![filling, ready, cleared].some(isThere)) return
  try {
    rmSync(filling, { recursive: true, force: true })
    if (isThere(ready)) {
      for (const name of readPlan(ready).old) move(name, folder, join(ready, 'old'))
      syncFolder(join(ready, 'old'))
      syncFolder(folder)
      renameSync(ready, cleared)
      syncFolder(folder)
    }
    if (!isThere(cleared)) return
    const { aside } = readPlan(cleared)
    for (const name of readdirSync(join(cleared, 'new'))) move(name, join(cleared, 'new'), folder)
    syncFolder(folder)
    const old = join(cleared, 'old')
    if (existsSync(old) && readdirSync(old).length > 0) renameSync(old, join(folder, aside))
    // Without its name it is rest. A cut while it is deleted leaves a part of it.
    renameSync(cleared, filling)
    syncFolder(folder)
    rmSync(filling, { recursive: true })
  } catch (error) {
    const reason = error instanceof Error ? error.message : error
    throw new StartError(
      `Cannot finish replacing the data in ${folder} (${reason}). Fix this, then start again: it goes on from there.`,
      { cause: error },
    )
  }
}

/** Name for a folder with old files, which does not exist yet. */
export function asideName(folder: string, reason: string, now: number): string {
  const time = new Date(now).toISOString().replace(/[-:]|\.\d+/g, '')
  const name = `${reason}-${time}`
  for (let n = 1; ; n += 1) {
    const free = n === 1 ? name : `${name}-${n}`
    if (!existsSync(join(folder, free))) return free
  }
}

const isThere = (path: string) => lstatSync(path, { throwIfNoEntry: false }) !== undefined

/** Links are refused: root may finish what is in a folder of another user. */
function readPlan(state: string): Plan {
  for (const path of [state, join(state, 'new'), join(state, 'old')]) {
    if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) {
      throw new Error(`${path} is a link`)
    }
  }
  return PlanSchema.parse(JSON.parse(readFileSync(join(state, PLAN), 'utf8')))
}

function move(name: string, from: string, to: string): void {
  if (isThere(join(from, name))) renameSync(join(from, name), join(to, name))
}

/** Gives a tree to the owner of the data directory, and syncs it to disk. */
function settle(path: string, owner: { readonly uid: number; readonly gid: number }): void {
  if (lstatSync(path).isDirectory()) {
    for (const name of readdirSync(path)) settle(join(path, name), owner)
  }
  if (process.geteuid?.() === 0) lchownSync(path, owner.uid, owner.gid)
  // A file is synced in the same way.
  syncFolder(path)
}
