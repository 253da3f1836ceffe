import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { isOfThisProcess } from '../../../src/agent/upstreams/upstream-relay.ts'

/** Both ends of a connection that this process makes to itself. */
async function connected(localAddress: string): Promise<{ client: Socket; accepted: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = connect({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    localAddress,
  })
  const [accepted] = await once(server, 'connection')
  onTestFinished(() => {
    client.destroy()
    accepted.destroy()
    server.close()
  })
  return { client, accepted }
}

describe.runIf(process.platform === 'linux')('isOfThisProcess', () => {
  it('knows the own end of a connection, half closed as well', async () => {
    const { client, accepted } = await connected('127.0.0.1')
    expect(await isOfThisProcess(accepted)).toBe(true)
    accepted.resume()
    client.end()
    await once(accepted, 'end')
    expect(await isOfThisProcess(accepted)).toBe(true)
  })

  it('knows none that nobody has any more, or from another address', async () => {
    const { client, accepted } = await connected('127.0.0.1')
    client.destroy()
    await once(client, 'close')
    expect(await isOfThisProcess(accepted)).toBe(false)
    expect(await isOfThisProcess((await connected('127.0.0.2')).accepted)).toBe(false)
  })
})
