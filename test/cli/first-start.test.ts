import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type ListenAddress, listenOn } from '../../src/base/listen-address.ts'
import { checkFirstStart } from '../../src/cli/first-start.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOST = '127.0.0.1'
const visitors = (listen: ListenAddress, setting: string) => ({
  ...{ listen, setting },
  failure: 'Visitors cannot connect',
})

async function listen(port: number) {
  const server = createServer()
  await listenOn(server, { host: HOST, port })
  const address = server.address()
  if (typeof address === 'string' || !address) throw new Error('no port')
  const close = () => new Promise((done) => server.close(done))
  return { port: address.port, close }
}

describe('the check of a first start', () => {
  it('refuses two settings with one address, and leaves free addresses free', async () => {
    const { port, close } = await listen(0)
    await close()
    const dataDir = join(temporaryFolder(), 'data')
    const one = visitors({ host: HOST, port }, 'GATEWAY_HTTP_LISTEN')
    const other = visitors({ host: HOST, port }, 'GATEWAY_HTTPS_LISTEN')
    await expect(checkFirstStart(dataDir, [one, other])).rejects.toThrow(
      `Visitors cannot connect on ${HOST}:${port}: the address is already in use; set GATEWAY_HTTPS_LISTEN to another address.`,
    )
    await checkFirstStart(dataDir, [one])
    await (await listen(port)).close()
  })

  it('leaves sockets of systemd, data and other faults to the start itself', async () => {
    const { port, close } = await listen(0)
    onTestFinished(async () => void (await close()))
    const taken = visitors({ host: HOST, port }, 'GATEWAY_HTTP_LISTEN')
    const dataDir = join(temporaryFolder(), 'data')
    await expect(checkFirstStart(dataDir, [taken])).rejects.toThrow('already in use')
    await checkFirstStart(temporaryFolder(), [taken])
    await checkFirstStart(dataDir, [
      visitors({ host: HOST, port, fd: 3 }, 'GATEWAY_HTTP_LISTEN'),
      // An address of another machine: the listener names GATEWAY_PUBLIC_NAMES.
      visitors({ host: '192.0.2.1', port: 4443 }, 'GATEWAY_AGENT_LISTEN'),
    ])
  })
})
