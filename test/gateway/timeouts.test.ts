import { describe, expect, it } from 'vitest'
import { forward, startDeviceService } from '../helpers/device-sdk.ts'
import { eventually } from '../helpers/eventually.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { RawClient } from '../helpers/raw-http.ts'
import { connectSdk, type RunningOptions, startGateway } from '../helpers/running-gateway.ts'

const HOST = 'cam.site.test'

async function siteOf(options: RunningOptions, service: string) {
  const clock = new ManualClock(Date.now())
  const running = await startGateway({ clock, ...options })
  await forward(await connectSdk(running), service, { domain: HOST })
  return { clock, running }
}

describe('a device with the SDK alone', () => {
  it('has as long for its answer as the gateway grants', async () => {
    let asked = 0
    const service = await startDeviceService(() => {
      asked += 1
    })
    const { clock, running } = await siteOf({ upstreamTimeoutMs: 5_000 }, service)
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
