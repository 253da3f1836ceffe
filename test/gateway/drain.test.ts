import type { ServerResponse } from 'node:http'
import { expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { connectSdk, inTime, startGateway } from '../helpers/running-gateway.ts'
import { serveHttp } from '../helpers/serve-http.ts'

/** A gateway that is told to stop while a service has sent the first half of its answer. */
async function stopInTheMiddle(drainMs: number | undefined) {
  const running = await startGateway(drainMs === undefined ? {} : { drainMs })
  const asked = createDeferred<ServerResponse>()
  const { server } = await serveHttp((_, response) => {
    response.writeHead(200, { 'content-length': 4 })
    response.write('ha')
    asked.resolve(response)
  })
  const session = await connectSdk(running)
  await inTime(
    session
      .httpEndpoint()
      .domain('a.site.test')
      .listenAndForward(`http://localhost:${server.port}`),
  )
  const ingress = `http://127.0.0.1:${running.addresses.http.port}`
  const visit = publicRequest({ ingress, host: 'a.site.test', path: '/' }).then(
    ({ text }) => text,
    () => 'cut',
  )
  const response = await asked.promise
  const stopped = running.gateway.stop()
  return { visit, response, stopped }
}

it('lets requests under way end when it stops', async () => {
  const { visit, response, stopped } = await stopInTheMiddle(undefined)
  response.end('lf')
  expect(await visit).toBe('half')
  await stopped
})

it('cuts off what does not end within the time that there is', async () => {
  const { visit, response, stopped } = await stopInTheMiddle(0)
  await stopped
  expect(await visit).toBe('cut')
  response.destroy()
})
