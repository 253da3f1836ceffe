import { readFileSync } from 'node:fs'
import { connect as connectTcp, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { GatewayOptions } from '../../src/gateway/gateway.ts'
import { forward, startDeviceService } from '../helpers/device-sdk.ts'
import { eventually } from '../helpers/eventually.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { RawClient } from '../helpers/raw-http.ts'
import { connectSdk, GATEWAY_DEFAULTS, startGateway } from '../helpers/running-gateway.ts'
import { somePorts } from '../helpers/some-ports.ts'
import { addressOf, bindTcp, startTcpService } from '../helpers/tcp-site.ts'

const HOST = 'cam.site.test'

async function siteOf(change: Partial<GatewayOptions['timeouts']>, service: string) {
  const clock = new ManualClock(Date.now())
  const running = await startGateway({
    clock,
    timeouts: { ...GATEWAY_DEFAULTS.timeouts, ...change },
  })
  await forward(await connectSdk(running), service, { domain: HOST })
  return { clock, running }
}

describe('a device with the SDK alone', () => {
  it('has as long for its answer as the gateway grants', async () => {
    let asked = 0
    const service = await startDeviceService(() => {
      asked += 1
    })
    const { clock, running } = await siteOf({ answerMs: 5_000 }, service)
    const ingress = `http://127.0.0.1:${running.addresses.http.port}`
    const answer = publicRequest({ ingress, host: HOST })
    await eventually(() => expect(asked).toBe(1))
    let status: number | undefined
    void answer.then((it) => {
      status = it.status
    })
    await clock.advance(4_000)
    expect(status).toBeUndefined()
    await clock.advance(3_000)
    expect((await answer).headers['ngrok-error-code']).toBe('ERR_NGROK_3005')
  })

  it('may be silent in a stream for as long as the gateway grants', async () => {
    const service = await startDeviceService((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('data: 1\n\n')
    })
    const { clock, running } = await siteOf({ idleMs: 5_000 }, service)
    const visitor = RawClient.connect(running.addresses.http.port)
    visitor.send(`GET / HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`)
    await visitor.receive('data: 1')
    await clock.advance(4_000)
    expect(visitor.ending).toBeUndefined()
    await clock.advance(3_000)
    expect(await visitor.end()).toBe('ECONNRESET')
  })
})

/** The kernel's timer on the gateway's side of a connection: 2 is TCP keep-alive, see proc_net_tcp. */
function timerOf({ localPort = 0, remotePort = 0 }: Socket): string | undefined {
  const [own, peer] = [remotePort, localPort].map(
    (port) => `:${port.toString(16).toUpperCase().padStart(4, '0')}`,
  )
  for (const line of readFileSync('/proc/self/net/tcp', 'latin1').split('\n')) {
    const [, local, remote, , , timer] = line.trim().split(/\s+/)
    if (local?.endsWith(own ?? '') && remote?.endsWith(peer ?? '')) return timer?.slice(0, 2)
  }
  return undefined
}

describe.runIf(process.platform === 'linux')('TCP keep-alive', () => {
  it('finds visitors, agents and users of TCP endpoints that are gone', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const { http, https, agent } = running.addresses
    // A service that takes no connection would end the visitor's.
    const { port: to } = await startTcpService(() => {})
    const endpoint = await bindTcp(await connectSdk(running), { to })
    const ports = [http.port, https.port, agent.port, Number(addressOf(endpoint).split(':')[1])]
    for (const port of ports) {
      const socket = connectTcp(port, '127.0.0.1')
      onTestFinished(() => void socket.destroy())
      await eventually(() => expect([port, timerOf(socket)]).toEqual([port, '02']))
    }
  })
})
