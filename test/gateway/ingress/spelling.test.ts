import { expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { answerOf, connectHttp2, openStream } from '../../helpers/http2-visitor.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startScriptedService } from '../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

/** What is denied is answered 403, and the device sees none of it. */
async function denying(...expressions: string[]) {
  const service = await startScriptedService(OK)
  const policy = compilePolicy(
    {
      on_http_request: [{ expressions, actions: [{ type: 'deny', config: { status_code: 403 } }] }],
    },
    { clock: systemClock, log: captureLog().log },
  )
  const site = await startIngressSite({ service: service.port, policy })
  const http1 = async (target: string, host: string) => {
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
    return Number((await client.receive('\r\n\r\n')).slice(9, 12))
  }
  const session = await connectHttp2(site)
  const http2 = async (target: string, host: string) => {
    const headers = { ':path': target, ':authority': host }
    return (await answerOf(openStream(session, headers))).status
  }
  return {
    service,
    both: async (target: string, host = 'a.test') => [
      await http1(target, host),
      await http2(target, host),
    ],
  }
}

it('decides about a host whatever its spelling, over HTTP/1.1 and HTTP/2', async () => {
  const { service, both } = await denying("req.host == 'a.test'")
  for (const host of ['a.test', 'A.Test', 'a.test.', 'a.test:8443', 'A.TEST.:1']) {
    expect(await both('/', host)).toEqual([403, 403])
  }
  expect(service.requests).toEqual([])
})

it('decides about a path whatever its spelling, over HTTP/1.1 and HTTP/2', async () => {
  const { service, both } = await denying("req.url.path.startsWith('/admin')")
  for (const target of ['/admin', '//admin', '/%61dmin?a', '/%2Fadmin']) {
    expect(await both(target)).toEqual([403, 403])
  }
  for (const target of ['/x/../admin', '/%2e/admin', '/x%2f..%2fadmin', '/x\\admin', '/%00']) {
    expect(await both(target)).toEqual([400, 400])
  }
  expect(service.requests).toEqual([])
})

it('passes a path on byte for byte', async () => {
  const { service, both } = await denying("req.url.path.startsWith('/admin')")
  const target = '/projects//%7Ea%2fb/%C3%b6?%64=/../x'
  expect(await both(target)).toEqual([200, 200])
  for (const request of service.requests) expect(request).toContain(`GET ${target} HTTP/1.1\r\n`)
})

it('passes dot segments to a service whose policy does not read the path', async () => {
  const { service, both } = await denying("req.method == 'PUT'")
  expect(await both('/x/../%2e/y')).toEqual([200, 200])
  expect(service.requests.map((request) => request.split(' ')[1])).toEqual([
    '/x/../%2e/y',
    '/x/../%2e/y',
  ])
})
