import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createLogger } from '../../../src/base/logger.ts'
import { openIncoming } from '../../../src/cli/update/install.ts'
import { UpdateHome } from '../../../src/cli/update/update-home.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

function opened(maxBytes?: number) {
  const folder = temporaryFolder()
  const incoming = openIncoming(
    new UpdateHome(join(folder, 'home')),
    createLogger('silent'),
    maxBytes,
  )
  return { incoming, archive: join(folder, 'archive') }
}

describe('openIncoming', () => {
  it('takes a whole archive', async () => {
    const { incoming, archive } = opened()
    const bytes = Buffer.alloc(300_000, 'archive')
    writeFileSync(archive, bytes)
    const copy = await incoming.copyIn(archive)
    expect(readFileSync(copy).equals(bytes)).toBe(true)
    incoming.close()
  })

  it('takes no more than an archive may have, of a file that grows after it was looked at', async () => {
    const { incoming, archive } = opened(1_000)
    writeFileSync(archive, Buffer.alloc(300_000))
    // One byte more: no sum that was signed fits it.
    expect(readFileSync(await incoming.copyIn(archive))).toHaveLength(1_001)
    expect(readFileSync(await incoming.copyIn('/dev/zero'))).toHaveLength(1_001)
    incoming.close()
  })

  it('does not wait for a pipe that nobody writes to', async () => {
    const { incoming, archive } = opened()
    execFileSync('mkfifo', [archive])
    expect(readFileSync(await incoming.copyIn(archive))).toHaveLength(0)
    incoming.close()
  })

  it('says what cannot be copied', async () => {
    const { incoming, archive } = opened()
    await expect(incoming.copyIn(archive)).rejects.toThrow(
      /Cannot copy .*: ENOENT.*Nothing was changed/,
    )
    incoming.close()
  })
})
