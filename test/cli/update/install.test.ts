import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { createLogger } from '../../../src/base/logger.ts'
import { unusedData } from '../../../src/cli/update/install.ts'
import { tryLockFolder } from '../../../src/store/data-folder.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

it('copies no data that a command changes, and makes no lock there', () => {
  const dataDir = temporaryFolder()
  const context = {
    environment: { AGENT_DATA_DIR: dataDir, SVC_SERVER_ADDR: '127.0.0.1:9' },
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    stop: new AbortController().signal,
  }
  expect(unusedData(context)).toBe(dataDir)
  expect(existsSync(join(dataDir, 'agent.lock'))).toBe(false)
  writeFileSync(join(dataDir, 'agent.lock'), '')
  const options = { folder: dataDir, owner: 'agent', log: createLogger('silent') }
  const command = tryLockFolder(options)
  expect(() => unusedData(context)).toThrow(/Another agent is using the data directory/)
  command?.release()
  expect(unusedData(context)).toBe(dataDir)
  expect(tryLockFolder(options)).toBeUndefined()
})
