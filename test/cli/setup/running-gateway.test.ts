import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { makeFolder } from '../../../src/base/file.ts'
import { apiKeyPath } from '../../../src/cli/api-key-file.ts'
import { RunningGateway } from '../../../src/cli/setup/running-gateway.ts'
import { parseConfig } from '../../../src/config.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const NAME = 'gw.example.com'
const job = (msg: string, retries_at: string) => ({
  ...{ error_code: 'ERR_GATEWAY_CERTIFICATE', msg, retries_at },
  started_at: '2026-01-01T00:00:00Z',
})
const OLD = job('the old failure', '2026-01-01T01:00:00Z')
const NEW = job('the new failure', '2026-01-01T02:00:00Z')

const RECORDS = { ok: true, records: [] as object[] }

/** A gateway whose API shows these jobs, one at each request; the last one stays. */
async function gatewayShowing(jobs: readonly object[], challenge = 'on-demand', checked = RECORDS) {
  const left = [...jobs]
  const checks: (string | undefined)[] = []
  const api = createServer(({ method, url }, response) => {
    if (method === 'POST') {
      checks.push(url)
      return void response.end(JSON.stringify(checked))
    }
    const provisioning_job = left.length > 1 ? left.shift() : left[0]
    const domain = {
      ...{ id: 'rd_1', domain: NAME, acme_challenge_cname_target: '' },
      certificate_management_policy: { authority: 'letsencrypt', challenge },
      certificate_management_status: { renews_at: null, provisioning_job },
    }
    response.end(JSON.stringify({ reserved_domains: [domain], next_page_uri: null }))
  })
  api.listen(0, '127.0.0.1')
  await once(api, 'listening')
  onTestFinished(() => void api.close().closeAllConnections())
  const config = parseConfig({
    STATE_DIRECTORY: temporaryFolder(),
    GATEWAY_API_LISTEN: `127.0.0.1:${(api.address() as AddressInfo).port}`,
    GATEWAY_HTTPS_LISTEN: `127.0.0.1:${somePorts(1).first}`,
  }).gateway
  makeFolder(config.dataDir)
  writeFileSync(apiKeyPath(config), 'key')
  writeFileSync(join(config.dataDir, 'ca.pem'), (await createTlsFixture()).caPem)
  const stop = new AbortController().signal
  return { checks, gateway: new RunningGateway({ config, clock: systemClock, stop, files: [] }) }
}

it('reports the failure of the retry, not the earlier one', async () => {
  const { gateway, checks } = await gatewayShowing([OLD, OLD, NEW])
  expect(await gateway.certificate(NAME, 60_000)).toEqual({
    ...{ state: 'failed', reason: 'the new failure' },
  })
  expect(checks).toHaveLength(1)
})

it('reports the last failure if there was no retry in time', async () => {
  const { gateway } = await gatewayShowing([OLD])
  expect(await gateway.certificate(NAME, 2_500)).toEqual({
    ...{ state: 'failed', reason: 'the old failure' },
  })
})

it('reports the DNS records that stopped the retry', async () => {
  const name = `_acme-challenge.${NAME}`
  const record = { type: 'CNAME', name, expected: 'x.gateway.test', found: [], ok: false }
  const { gateway } = await gatewayShowing([OLD], 'dns-01', {
    ...{ ok: false, records: [{ ...record, error: 'ENOTFOUND' }] },
  })
  expect(await gateway.certificate(NAME, 60_000)).toEqual({
    state: 'failed',
    reason: `the old failure The DNS record CNAME ${name} must be x.gateway.test, but DNS has none (ENOTFOUND).`,
  })
})

it('reports an order that is under way', async () => {
  const { gateway } = await gatewayShowing([{ ...OLD, error_code: null }])
  expect(await gateway.certificate(NAME, 1_000)).toEqual({ state: 'ordered' })
})
