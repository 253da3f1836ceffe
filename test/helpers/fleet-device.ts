import { once } from 'node:events'
import type { RequestListener } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'
import { trustBeside } from '../../src/agent/probes/public-request.ts'
import { Secret } from '../../src/base/secret.ts'
import { DeviceApi, type DeviceApiOptions } from '../../src/cli/fleet/device-api.ts'
import { createTlsFixture } from './tls-fixture.ts'

const DEVICE = {
  name: 'cam1',
  agentDomain: 'localhost',
  tags: [],
  apiToken: new Secret('token-of-cam1'),
}

/** The API of a device that answers as `listener` does, over TLS, with a certificate for localhost. */
export async function startDevice(
  listener: RequestListener,
  isTrusted = true,
  agentDomain = DEVICE.agentDomain,
  options: Partial<Pick<DeviceApiOptions, 'stop' | 'timeoutMs'>> = {},
) {
  const { caPem, certPem, keyPem } = await createTlsFixture()
  const server = createServer({ key: keyPem, cert: certPem }, listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  return new DeviceApi({
    device: { ...DEVICE, agentDomain },
    address: { host: '127.0.0.1', port },
    trust: isTrusted ? trustBeside(caPem) : undefined,
    stop: new AbortController().signal,
    ...options,
  })
}
