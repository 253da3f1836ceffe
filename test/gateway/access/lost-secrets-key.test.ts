import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { SECRETS_KEY } from '../../../src/gateway/access/secret-seal.ts'
import { eventually } from '../../helpers/eventually.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'

describe('the key file of secrets', () => {
  it('makes a gateway degraded while it is lost, and works at once when it is restored', async () => {
    const first = await startGateway()
    const { call } = await managed(first)
    await call('POST', '/vaults', { name: 'site' })
    await call('POST', '/vault_secrets', { vault_name: 'site', name: 'key', value: 'the value' })
    const config = { status_code: 200, body: `\${secrets.get('site', 'key')}` }
    const rules = [{ actions: [{ type: 'custom-response', config }] }]
    const traffic_policy = JSON.stringify({ on_http_request: rules })
    await call('POST', '/endpoints', { url: 'http://c.site.test', traffic_policy })
    const see = async ({ addresses }: RunningGateway) => {
      const ingress = `http://127.0.0.1:${addresses.http.port}`
      const { status, text } = await publicRequest({ ingress, host: 'c.site.test' })
      return status === 200 ? text : status
    }
    const ready = async ({ addresses }: RunningGateway) =>
      (await fetch(`http://127.0.0.1:${addresses.api?.port}/readyz`)).json()
    expect(await see(first)).toBe('the value')
    expect(await ready(first)).toEqual({ ready: true, degraded: false, reasons: [] })
    await first.gateway.stop()
    const path = join(first.dataDir, SECRETS_KEY)
    const key = readFileSync(path)
    rmSync(path)
    const again = await startGateway({ dataDir: first.dataDir, authtoken: first.authtoken })
    await eventually(async () =>
      expect(await ready(again)).toEqual({
        ready: true,
        degraded: true,
        reasons: [expect.stringMatching(/^The file secrets\.key is missing or damaged: /)],
      }),
    )
    expect(await see(again)).toBe(500)
    writeFileSync(path, key)
    expect(await see(again)).toBe('the value')
  })
})
