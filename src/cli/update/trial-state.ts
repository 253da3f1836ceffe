import { readFileSync } from 'node:fs'
import * as z from 'zod'
import { readVersion } from '../version.ts'

const Versions = z.object({
  from: z.string(),
  to: z.string(),
  /** Below the home of updates; null is the program that the package has installed. */
  fromFolder: z.string().nullable(),
  toFolder: z.string(),
})

/**
 * State of an update. The version of the package handles states of later versions, so existing states keep
 * their meaning. Each change is on disk before the step that it announces:
 *
 * | from        | to            | by             | when                                                  |
 * |-------------|---------------|----------------|-------------------------------------------------------|
 * | none, ended | `prepared`    | `update`       | the new version is unpacked and has answered          |
 * | `prepared`  | `copying`     | start          | no agent runs; its data is being copied               |
 * | `prepared`  | `rolled-back` | start, watch   | another boot, nothing restarts                        |
 * | `copying`   | `trying`      | start          | the data is copied; the new version starts            |
 * | `copying`   | `rolled-back` | start          | no space, a failed rename, or an interruption         |
 * | `trying`    | `confirmed`   | watch          | it was ready and linked for a while                   |
 * | `trying`    | `rolled-back` | the next start | a trial is a single start                             |
 */
export const UpdateState = z.discriminatedUnion('state', [
  Versions.extend({ state: z.literal('prepared'), bootId: z.string() }),
  Versions.extend({ state: z.literal('copying'), dataDir: z.string() }),
  // Milliseconds of the machine's monotonic clock, which a correction of the time does not move.
  Versions.extend({ state: z.literal('trying'), dataDir: z.string(), untilMs: z.number() }),
  Versions.extend({ state: z.literal('confirmed') }),
  Versions.extend({ state: z.literal('rolled-back'), reason: z.string() }),
])
export type UpdateState = z.infer<typeof UpdateState>
const UNDER_WAY: ReadonlySet<UpdateState['state']> = new Set(['prepared', 'copying', 'trying'])
export type StateOf<S extends UpdateState['state']> = Extract<UpdateState, { state: S }>

/** Undefined where there was no update, and where the file says nothing that this version knows. */
export function readUpdateState(path: string): UpdateState | undefined {
  try {
    return UpdateState.safeParse(JSON.parse(readFileSync(path, 'utf8'))).data
  } catch {
    return undefined
  }
}

export function isUnderWay(
  state: UpdateState | undefined,
): state is StateOf<'prepared'> | StateOf<'copying'> | StateOf<'trying'> {
  return state !== undefined && UNDER_WAY.has(state.state)
}

/** One sentence for people. */
export function describeUpdate(state: UpdateState | undefined): string {
  if (!state) return `No update is installed. Version ${readVersion()} is running.`
  const { from, to } = state
  switch (state.state) {
    case 'prepared':
    case 'copying':
      return `The trial of version ${to} is about to start. Version ${from} is running.`
    case 'trying':
      return `Version ${to} is on trial. Without a link in time, ${from} is restored.`
    case 'confirmed':
      return `Version ${to} is running and replaced ${from}.`
    case 'rolled-back':
      return `Version ${from} is running. The update to ${to} was rolled back: ${state.reason}.`
  }
}
