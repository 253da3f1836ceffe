import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { readLastSeen } from '../../../src/cli/fleet/last-seen.ts'
import { startManagementApi } from '../../helpers/management-client.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

it('asks the gateway for offline devices, and warns only where the caller has named it', async () => {
  const { baseUrl, key, call } = await startManagementApi()
  const credential = await call('POST', '/credentials', { body: { description: 'cam1' } })
  const body = { name: 'cam1', credential_id: credential.body.id }
  await call('POST', '/devices', { body })
  const stderr = new PassThrough()
  const root = temporaryFolder()
  const environment = { GATEWAY_DATA_DIR: root }
  const stop = new AbortController().signal
  const context = { environment, root, stdout: stderr, stderr, stop }
  const withKey = (apiKey: string) => ({
    ...context,
    environment: { ...environment, SVC_API_KEY: apiKey },
  })
  const apiUrl = new URL(baseUrl)
  expect(await readLastSeen(withKey(key.reveal()), { apiUrl })).toEqual(
    new Map([['cam1', { at: null, reason: 'The device has never connected.' }]]),
  )
  expect(await readLastSeen(context, {})).toBeUndefined()
  expect(stderr.read()).toBeNull()
  expect(await readLastSeen(withKey('wrong'), { apiUrl })).toBeUndefined()
  expect(String(stderr.read())).toMatch(
    /^warning: the gateway does not tell why devices are offline: .* rejects the API key/,
  )
})
