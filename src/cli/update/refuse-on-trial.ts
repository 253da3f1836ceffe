import { realpathSync } from 'node:fs'
import { StartError } from '../../base/app-error.ts'
import { UpdateHome } from './update-home.ts'

/** Before a command changes this data folder: throws a StartError while the change could be undone with a trial. */
export function refuseOnTrial(dataDir: string, home: UpdateHome = new UpdateHome()): void {
  const state = home.state()
  if (state?.state !== 'copying' && state?.state !== 'trying') return
  if (realPath(state.dataDir) !== realPath(dataDir)) return
  throw new StartError(
    `Version ${state.to} of the agent is on trial. A rollback would also undo changes made now. Try again in a minute.`,
  )
}

function realPath(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return path
  }
}
