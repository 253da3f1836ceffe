import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect, createServer } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { shownChain } from '../../../src/agent/probes/preflight.ts'
import { createTlsFixture, type TlsFixture } from '../../helpers/tls-fixture.ts'

/** What is seen of a server that shows these certificates. */
async function chainOf({ keyPem }: TlsFixture, cert: string): Promise<string> {
  const server = createServer({ key: keyPem, cert }, (socket) => socket.on('error', () => {}))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  onTestFinished(() => void socket.destroy())
  return shownChain(socket)
}

describe('the chain that a server shows', () => {
  it('ends with who has signed the last one, where that is not shown', async () => {
    const fixture = await createTlsFixture()
    expect(await chainOf(fixture, fixture.certPem)).toBe('localhost ← test CA (not sent)')
  })

  it('ends with a CA that is shown, which signs itself', async () => {
    const fixture = await createTlsFixture()
    expect(await chainOf(fixture, `${fixture.certPem}\n${fixture.caPem}`)).toBe(
      'localhost ← test CA',
    )
  })
})
