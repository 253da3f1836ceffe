import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { openAgentDatabase } from '../../../src/api/agent-database.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/logger.ts'
import { withTokenDesk } from '../../../src/cli/token/token-desk.ts'
import { UpdateHome } from '../../../src/cli/update/update-home.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

describe('withTokenDesk', () => {
  it('changes nothing that could be undone with the trial of an update', async () => {
    const dataDir = temporaryFolder()
    openAgentDatabase(dataDir, { log: createLogger('silent'), clock: systemClock }).close()
    const home = new UpdateHome(join(temporaryFolder(), 'home'))
    const context = {
      environment: { AGENT_DATA_DIR: dataDir },
      stdout: new PassThrough(),
      stderr: new PassThrough(),
      stop: new AbortController().signal,
    }
    const create = () => withTokenDesk(context, (desk) => desk.create({ name: 'shop' }), home)
    const versions = { from: '1.0.0', to: '1.1.0', fromFolder: null, toFolder: 'versions/1.1.0' }
    home.write({ state: 'trying', ...versions, dataDir, untilMs: 0 })
    await expect(create()).rejects.toThrow(/on trial/)
    home.write({ state: 'confirmed', ...versions })
    expect(await create()).toMatchObject({ name: 'shop' })
  })
})
