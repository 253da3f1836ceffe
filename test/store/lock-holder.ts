/** `lock-holder.ts FOLDER`: locks the folder, says so, and stays until it is killed. */
import { createLogger } from '../../src/base/logger.ts'
import { lockFolder } from '../../src/store/folder-lock.ts'

const [, , folder = ''] = process.argv
lockFolder({ folder, owner: 'agent', log: createLogger('silent') })
process.stdout.write('locked\n')
setInterval(() => {}, 60_000)
