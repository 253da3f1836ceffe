import { expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { type PublicResponse, publicRequest } from '../helpers/public-request.ts'
import { connectSdk, inTime, startGateway } from '../helpers/running-gateway.ts'

const HOST = 'limited.site.test'
const POLICY = {
  on_http_request: [
    {
      actions: [
        {
          type: 'rate-limit',
          config: {
            name: '30 per minute and client',
            algorithm: 'sliding_window',
            capacity: 30,
            rate: '60s',
            bucket_key: ['conn.client_ip'],
          },
        },
      ],
    },
  ],
}

/** The machine's clock, of which the monotonic side can leap ahead. */
class LeapingClock implements Clock {
  #aheadMs = 0
  readonly now = systemClock.now
  readonly sleep = systemClock.sleep

  monotonic(): number {
    return systemClock.monotonic() + this.#aheadMs
  }

  leap(ms: number): void {
    this.#aheadMs += ms
  }
}

it('admits 30 of 100 requests through the real SDK, and tells the others truly when to come back', async () => {
  const clock = new LeapingClock()
  const gateway = await startGateway({ clock })
  const upstream = await startEchoUpstream()
  onTestFinished(() => upstream.close())
  const session = await connectSdk(gateway)
  const endpoint = session.httpEndpoint().domain(HOST).trafficPolicy(JSON.stringify(POLICY))
  await inTime(endpoint.listenAndForward(`http://localhost:${upstream.port}`))
  const ingress = `http://${formatListenAddress(gateway.addresses.http)}`
  const visit = (): Promise<PublicResponse> => publicRequest({ ingress, host: HOST })

  const answers: PublicResponse[] = []
  for (let call = 0; call < 100; call += 1) answers.push(await visit())
  const refused = answers.filter(({ status }) => status === 429)
  expect([answers.filter(({ status }) => status === 200).length, refused.length]).toEqual([30, 70])

  const last = refused.at(-1)
  const waitS = Number(last?.headers['retry-after'])
  expect(waitS).toBeGreaterThan(50)
  expect(waitS).toBeLessThanOrEqual(60)
  clock.leap((waitS - 2) * 1_000)
  expect((await visit()).status).toBe(429)
  clock.leap(2_000)
  expect((await visit()).status).toBe(200)
})
