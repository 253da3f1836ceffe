import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { specOf } from '../helpers/agent-in-folder.ts'
import { startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'

/** A service whose connections serve one request each. */
async function serveOn(host: string, text: string, port = 0): Promise<number> {
  const server = createServer((request, response) => {
    response.setHeader('connection', 'close').end(`${text} for ${request.headers.host}`)
  })
  await new Promise<void>((resolve) => server.listen(port, host, resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  return (server.address() as AddressInfo).port
}

it('follows an allowed name only where the rules allow, at each connection of the SDK', async () => {
  let leadsTo = ['127.0.0.1']
  const on = await startedOnGateway({
    forward: { allow: ['cam.lan'], ownAddresses: () => [], resolve: async () => leadsTo },
  })
  const port = await serveOn('127.0.0.1', 'the camera')
  await serveOn('127.0.0.2', 'another', port)
  await on.agent.create(specOf('cam', `cam.lan:${port}`))
  const { host, port: ingressPort } = on.addresses.http
  const ingress = `http://${host}:${ingressPort}`
  const visit = () => publicRequest({ ingress, host: 'cam.site.test' })
  await eventually(async () => {
    expect((await visit()).text).toMatch(/^the camera for cam\.site\.test/)
  })

  leadsTo = ['127.0.0.2']
  expect((await visit()).text).toMatch(/^another for cam\.site\.test/)

  leadsTo = ['127.0.0.1', '169.254.169.254']
  const refused = await visit()
  expect([refused.status, refused.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012'])
  expect(refused.text).not.toContain('169.254')

  leadsTo = ['127.0.0.1']
  expect((await visit()).text).toMatch(/^the camera/)
})
