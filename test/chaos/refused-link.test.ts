import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  agentOnGateway,
  carriesTraffic,
  isDown,
  startedOnGateway,
} from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { bind, connectSdk } from '../helpers/running-gateway.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

const NAMES = ['a', 'b', 'c'] as const

describe('the tunnels of a device', () => {
  it('do not go to a service with another CA, and return to the right one', async () => {
    const on = await startedOnGateway()
    await on.createTunnels(...NAMES)
    const other = await createTlsFixture()
    let bytes = 0
    const impostor = createTlsServer({ cert: other.certPem, key: other.keyPem }, (socket) => {
      socket.on('error', () => {})
      socket.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
    })
    impostor.listen(0, '127.0.0.1')
    await once(impostor, 'listening')
    onTestFinished(() => void impostor.close())
    on.proxy.retarget({ host: '127.0.0.1', port: (impostor.address() as AddressInfo).port })
    on.proxy.cut()
    await eventually(() =>
      expect(on.agent.status().link).toMatchObject({ state: 'waiting', reason: 'tls' }),
    )
    expect(on.agent.find('a').status).toMatchObject({ state: 'waiting', reason: 'tls' })
    expect(bytes).toBe(0)
    on.proxy.retarget(on.addresses.agent)
    await carriesTraffic(on)
  })

  it('come with the right token after a wrong one', async () => {
    const on = await agentOnGateway()
    const wrong = '2canaryCANARYcanaryCANARYca_3wrongWRONGwrongWRONGw'
    writeFileSync(on.tokenPath, wrong)
    await on.agent.start()
    await on.createTunnels(...NAMES)
    await eventually(() =>
      expect(on.agent.status().link).toMatchObject({ state: 'refused', reason: 'auth' }),
    )
    expect(on.states()).toEqual(['waiting', 'waiting', 'waiting'])
    writeFileSync(on.tokenPath, on.authtoken.reveal())
    await carriesTraffic(on)
    expect(on.agentLog()).not.toContain(wrong)
    expect(on.agentLog()).not.toContain(on.authtoken.reveal())
  })

  it('come back without the one whose domain is online elsewhere, which comes later', async () => {
    const on = await startedOnGateway()
    await on.createTunnels(...NAMES)
    on.proxy.refuse()
    on.proxy.cut()
    await isDown(on)
    await eventually(() => expect(on.gateway.parts.registry.size).toBe(0))
    // The gateway holds the name for this device for a while.
    const other = await connectSdk(on)
    const elsewhere = await eventually(() => bind(other, 'b.site.test'))
    // It may be a ghost of its own for a while.
    const shown: (string | undefined)[] = []
    const stop = on.agent.onChange(() => {
      const { state, reason, serviceCode } = on.agent.find('b').status
      if (reason === 'conflict') shown.push(`${state} ${serviceCode}`)
    })
    on.proxy.heal()
    await eventually(() => expect(on.states()).toEqual(['online', 'refused', 'online']))
    stop()
    expect([shown[0], shown.at(-1)]).toEqual(['waiting ERR_NGROK_334', 'refused ERR_NGROK_334'])
    expect(await on.visit('a')).toBe('hello')
    await elsewhere.close()
    await carriesTraffic(on)
  })
})
