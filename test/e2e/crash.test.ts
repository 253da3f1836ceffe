import { describe, expect, it } from 'vitest'
import { KillLoop } from '../crash/kill-loop.ts'
import { ManagementKillLoop } from '../crash/management-kill-loop.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

describe('kill -9 during creates and deletes', () => {
  it('loses nothing that was acknowledged and leaves no ghosts', async () => {
    const report = await KillLoop.run({ folder: temporaryFolder(), kills: 6, seed: 20_261_120 })
    expect(report.created).toBeGreaterThan(0)
  }, 240_000)

  it('loses nothing that the management API acknowledged', async () => {
    const folder = temporaryFolder()
    const report = await ManagementKillLoop.run({ folder, kills: 4, seed: 20_261_120 })
    expect(report.created).toBeGreaterThan(0)
    expect(report.deleted).toBeGreaterThan(0)
  }, 240_000)
})
