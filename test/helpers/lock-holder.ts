/**
 * `lock-holder.ts FOLDER [again]`: locks the folder, says so, and stays until it is killed; ends when it
 * is refused. `again`: is refused in a second try. With `--expose-gc` what nobody refers to is gone
 * before it says so.
 */
import process from 'node:process'
import { createLogger } from '../../src/base/logger.ts'
import { tryLockFolder } from '../../src/store/data-folder.ts'

const [, , folder = '', again] = process.argv
const options = { folder, owner: 'agent', log: createLogger('silent') }
if (!tryLockFolder(options)) process.exit(1)
if (again !== undefined && tryLockFolder(options)) process.exit(2)
setImmediate(() => {
  globalThis.gc?.()
  process.stdout.write('locked\n')
})
setInterval(() => {}, 60_000)
