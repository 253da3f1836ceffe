import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { KEPT_VALUES_MIGRATION, KeptValues } from '../../src/agent/kept-values.ts'
import { listBackups } from '../../src/store/backup.ts'
import { openDatabase } from '../../src/store/database.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

function open(path = join(temporaryFolder(), 'agent.db')) {
  const clock = new ManualClock()
  const database = openDatabase({
    path,
    migrations: [KEPT_VALUES_MIGRATION],
    applicationId: 1,
    log: captureLog().log,
    clock,
  })
  onTestFinished(() => database.close())
  return { path, clock, database, kept: new KeptValues(database) }
}

describe('KeptValues', () => {
  it('outlive the process, each by its name, the last one that was set', () => {
    const { path, database, kept } = open()
    expect(kept.get('public-port')).toBeUndefined()
    kept.set('public-port', '443')
    kept.set('public-port', '8443')
    kept.set('default-policy', '{}')
    database.close()
    const later = open(path).kept
    expect([later.get('public-port'), later.get('default-policy')]).toEqual(['8443', '{}'])
  })

  it('are written only when they differ: each change makes a backup of the whole database', async () => {
    const { path, clock, kept } = open()
    const backupsAfter = async (value: string) => {
      kept.set('public-port', value)
      await clock.advance(60_000)
      return listBackups(path)[0]?.number
    }
    expect(await backupsAfter('443')).toBe(1)
    expect(await backupsAfter('443')).toBe(1)
    expect(await backupsAfter('8443')).toBe(2)
  })
})
