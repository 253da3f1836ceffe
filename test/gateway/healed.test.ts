import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** What became of the storage, as events tell it, after each of some starts. */
async function toldOver(dataDir: string, harm: () => void) {
  const first = await startGateway({ dataDir })
  await first.gateway.stop()
  harm()
  const { gateway } = await startGateway({ dataDir, authtoken: first.authtoken })
  const { events } = gateway.parts
  return events.after(0, 100).filter(({ type }) => type === 'storage.healed')
}

describe('a gateway whose database was damaged', () => {
  it('tells that it was healed, what from, and that nothing is missing', async () => {
    const dataDir = temporaryFolder()
    const told = await toldOver(dataDir, () => writeFileSync(join(dataDir, 'gateway.db'), 'noise'))
    expect(told).toMatchObject([
      {
        ownerId: null,
        details: { damage: 'corrupt', missing: 0, text: 'Nothing is missing.' },
      },
    ])
    expect(told[0]?.details.restored_from).toEqual(expect.any(String))
  })

  it('tells what may be missing when the newest changes were lost, too', async () => {
    const dataDir = temporaryFolder()
    const told = await toldOver(dataDir, () => {
      truncateSync(join(dataDir, 'gateway.db'), 5_000)
      truncateSync(join(dataDir, 'gateway.db.journal'), 0)
    })
    expect(told).toHaveLength(1)
    expect(told[0]?.details.text).toContain('may be missing')
  })

  it('has nothing to tell where nothing was wrong', async () => {
    expect(await toldOver(temporaryFolder(), () => {})).toEqual([])
  })
})
