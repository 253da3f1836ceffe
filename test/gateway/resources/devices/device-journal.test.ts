import { describe, expect, it } from 'vitest'
import {
  DeviceJournal,
  newDevice,
} from '../../../../src/gateway/resources/devices/device-journal.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'

/** A journal whose storage can be full, and a maker of devices. */
function openJournal() {
  const stores = openGatewayStores()
  const { database } = stores
  const storage = { isFull: false }
  const change: typeof database.change = async (work, options) => {
    if (storage.isFull && !options?.mayUseReserve) throw new Error('the disk is full')
    return database.change(work, options)
  }
  const { log } = captureLog()
  const journal = new DeviceJournal({ ...stores, database: { change }, log })
  const made = (name: string) =>
    newDevice({
      id: stores.ids.next('dv'),
      ownerId: null,
      credentialId: null,
      createdAt: 0,
      deviceId: name,
    })
  return { ...stores, journal, storage, made }
}

describe('the journal of devices, while the storage is full', () => {
  it('keeps what has happened to others when one is deleted', async () => {
    const { journal, storage, made, deviceStore } = openJournal()
    const [gone, other] = [made('gone'), made('other')]
    await journal.save(gone)
    storage.isFull = true
    journal.write({ ...gone, name: 'late' })
    journal.write({ ...other, isOnline: true })
    await journal.delete(gone.id)
    expect(journal.get(gone.id)).toBeUndefined()
    storage.isFull = false
    expect(await journal.flush()).toBe(true)
    expect(deviceStore.page({ limit: 10 })).toMatchObject([{ deviceId: 'other', isOnline: true }])
  })
})
