import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { AcmeAccount } from '../../../../src/gateway/certificates/acme/acme-account.ts'
import { createPrivateKeyPem } from '../../../../src/gateway/records/private-key.ts'

async function listen(serve: RequestListener) {
  const server = createServer(serve).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const stop = () => {
    server.closeAllConnections()
    server.close()
  }
  onTestFinished(stop)
  return { port: (server.address() as AddressInfo).port, stop }
}

/** Orders from whoever listens there. */
async function orderFrom(host: string, port: number): Promise<string> {
  const account = new AcmeAccount({
    directoryUrl: `http://${host}:${port}/`,
    email: undefined,
    accountKey: await createPrivateKeyPem(),
  })
  return account.order({
    names: ['a.test'],
    keyPem: await createPrivateKeyPem(),
    types: ['dns-01'],
    publish: () => {},
    withdraw: () => {},
  })
}

describe('an ACME account', () => {
  it.each(['127.0.0.1', 'localhost'])('says that nobody listens on %s', async (host) => {
    const { port, stop } = await listen(() => {})
    stop()
    await expect(orderFrom(host, port)).rejects.toThrow(/ECONNREFUSED/)
  })

  it('says what an authority answers that is out of order', async () => {
    const { port } = await listen((_request, response) => void response.writeHead(503).end())
    await expect(orderFrom('127.0.0.1', port)).rejects.toThrow(/directory returned error 503/)
  })

  it('reads no endless answer of what was taken for an authority', async () => {
    let sentBytes = 0
    const { port } = await listen((_request, response) => {
      const more = () => {
        sentBytes += 65_536
        response.write(' '.repeat(65_536), () => response.destroyed || more())
      }
      response.writeHead(200, { 'content-type': 'application/json' })
      more()
    })
    await expect(orderFrom('127.0.0.1', port)).rejects.toThrow(/maxContentLength/)
    expect(sentBytes).toBeLessThan(64 * 1024 * 1024)
  })
})
