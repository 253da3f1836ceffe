import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createLogger } from '../../../src/base/logger.ts'
import { DataCopy } from '../../../src/cli/update/data-copy.ts'
import { Trial } from '../../../src/cli/update/trial.ts'
import { UpdateHome } from '../../../src/cli/update/update-home.ts'
import { tryLockFolder } from '../../../src/store/data-folder.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** A home with version 1.1.0 beside the package's 1.0.0, and data. */
export function updateFolder() {
  const root = temporaryFolder()
  const dataDir = join(root, 'data')
  mkdirSync(join(dataDir, 'journal'), { recursive: true })
  const home = new UpdateHome(join(root, 'home'))
  const clock = { now: 1_000 }
  const put = (text: string) => writeFileSync(join(dataDir, 'journal/agent.db'), text)
  const addVersion = (version: string) =>
    mkdirSync(join(home.versions, version, 'lib'), { recursive: true })
  addVersion('1.1.0')
  put('before')
  const log = createLogger('silent')
  const lock = () => tryLockFolder({ folder: join(home.path, '.incoming'), owner: 'trial', log })
  const trialIn = (bootId: string) =>
    new Trial({ home, dataIn: (path) => new DataCopy(path), bootId, now: () => clock.now, lock })
  return {
    home,
    dataDir,
    clock,
    trial: trialIn('boot'),
    lock,
    settle: (of = dataDir) => trialIn('boot').settle(() => of),
    settleIn: (bootId: string) => trialIn(bootId).settle(() => dataDir),
    addVersion,
    put,
    read: () => readFileSync(join(dataDir, 'journal/agent.db'), 'utf8'),
    candidate: { from: '1.0.0', to: '1.1.0', toFolder: 'versions/1.1.0' },
    programOf: (version: string) => join(home.versions, version, 'lib'),
  }
}
