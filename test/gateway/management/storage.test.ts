import { describe, expect, it } from 'vitest'
import { LossRecord } from '../../../src/store/loss-record.ts'
import { startManagementApi } from '../../helpers/management-client.ts'

describe('/storage of the management API', () => {
  it('tells what may be missing until somebody confirms', async () => {
    const { call, folder } = await startManagementApi()
    const healing = { damage: 'corrupt', copy: 'backup', restoredFrom: 0, missing: 3 } as const
    new LossRecord(`${folder}/gateway.db`).add({ ...healing, mayBeMore: false }, 1_000)
    const told = await call('GET', '/storage')
    expect(told.body.unconfirmed).toEqual([
      {
        found_at: '1970-01-01T00:00:01.000Z',
        damage: 'corrupt',
        copy: 'backup',
        restored_from: '1970-01-01T00:00:00.000Z',
        missing: 3,
        may_be_more: false,
      },
    ])
    expect((await call('POST', '/storage/confirm', { key: null })).status).toBe(403)
    const { status, body } = await call('POST', '/storage/confirm')
    expect([status, body.unconfirmed]).toEqual([200, []])
    expect((await call('GET', '/storage')).body.unconfirmed).toEqual([])
  })
})
