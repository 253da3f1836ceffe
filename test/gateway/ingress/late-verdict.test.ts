import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import { CLOSE, CONTINUE, type Outcome, respond } from '../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../src/policy/exchange/policy-exchange.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'

const START = 'POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nabc'
const REST = 'defghij'
const NEXT = 'GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n'
const TEAPOT = respond({ status: 418, headers: [], body: 'late' })

const statuses = (client: RawClient) => client.text.match(/(?<=HTTP\/1\.1 )\d{3}/g)

/**
 * A request whose body is unfinished, and whose device breaks off behind its head while the policy
 * thinks about the response: the client has 502, and the rest of the body is being dropped.
 */
async function refusedWhileJudged(onHttpResponse: (exchange: PolicyExchange) => Promise<Outcome>) {
  const port = await startRawService((socket) => {
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'))
  })
  const site = await startIngressSite({
    service: port,
    policy: { hasResponseRules: true, onHttpRequest: () => CONTINUE, onHttpResponse },
  })
  const client = RawClient.connect(site.addresses.http.port)
  client.send(START)
  await client.receive('ERR_NGROK_3004)\n')
  return { site, client }
}

describe('a verdict on a response that comes when the request was answered already', () => {
  it.each([
    ['an answer', TEAPOT],
    ['a pass', CONTINUE],
    ['a close', CLOSE],
  ])('does nothing when it is %s', async (_what, outcome) => {
    const verdict = createDeferred<Outcome>()
    const { site, client } = await refusedWhileJudged(() => verdict.promise)
    verdict.resolve(outcome)
    await verdict.promise
    client.send(REST + NEXT)
    await client.receive('ERR_NGROK_3200)\n')
    expect(statuses(client)).toEqual(['502', '404'])
    expect(site.endpoint.traffic).toMatchObject({ active: 0 })
  })

  it('does nothing when it fails', async () => {
    const verdict = createDeferred<Outcome>()
    const { client } = await refusedWhileJudged(() => verdict.promise)
    verdict.reject(new Error('late'))
    await verdict.promise.catch(() => {})
    client.send(REST + NEXT)
    await client.receive('ERR_NGROK_3200)\n')
    expect(statuses(client)).toEqual(['502', '404'])
  })

  it('does not ask the client for the body any more', async () => {
    const goOn = createDeferred()
    const seen: unknown[] = []
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'))
    })
    const site = await startIngressSite({
      service: port,
      policy: {
        hasResponseRules: true,
        onHttpRequest: () => CONTINUE,
        onHttpResponse: async (exchange: PolicyExchange) => {
          await goOn.promise
          seen.push(await exchange.request?.readBody(100))
          return TEAPOT
        },
      },
    })
    const client = RawClient.connect(site.addresses.http.port)
    // A client may send the body without waiting, so that its connection goes on.
    const start = START.replace('Content-Length', 'Expect: 100-continue\r\nContent-Length')
    client.send(start + REST)
    await client.receive('ERR_NGROK_3004)\n')
    goOn.resolve()
    await eventually(() => expect(seen).toEqual([undefined]))
    client.send(NEXT)
    await client.receive('ERR_NGROK_3200)\n')
    expect(statuses(client)).toEqual(['502', '404'])
  })
})
