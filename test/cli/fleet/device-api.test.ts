import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:https'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { trustBeside } from '../../../src/agent/probes/public-request.ts'
import { StartError } from '../../../src/base/app-error.ts'
import { Secret } from '../../../src/base/secret.ts'
import { DeviceApi, OfflineError, OvertakenError } from '../../../src/cli/fleet/device-api.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const DEVICE = {
  name: 'cam1',
  agentDomain: 'localhost',
  tags: [],
  apiToken: new Secret('token-of-cam1'),
}

/** The API of a device that answers as `listener` does, over TLS. */
async function startDevice(listener: RequestListener, isTrusted = true) {
  const { caPem, certPem, keyPem } = await createTlsFixture()
  const server = createServer({ key: keyPem, cert: certPem }, listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  return new DeviceApi({
    device: DEVICE,
    address: { host: '127.0.0.1', port },
    trust: isTrusted ? trustBeside(caPem) : undefined,
    stop: new AbortController().signal,
  })
}

/** What becomes of a plan that is answered so. */
async function refusalOf(status: number, headers: Record<string, string>, body = '') {
  const api = await startDevice((_request, response) => {
    response.writeHead(status, headers).end(body)
  })
  return api.plan([]).catch((error: unknown) => error)
}

const problem = (code: string) => JSON.stringify({ code, detail: 'It says so.' })

describe('the API of a device', () => {
  it('is asked with its token, at its name', async () => {
    const asked: unknown[] = []
    const api = await startDevice(({ method, url, headers }, response) => {
      asked.push([method, url, headers.host, headers.authorization, headers['if-match']])
      response.end(JSON.stringify({ dry_run: false, etag: '"b"', tunnels: [] }))
    })
    expect((await api.plan([])).etag).toBe('"b"')
    await api.replace([], '"a"')
    expect(asked).toEqual([
      ['PUT', '/tunnels?dry_run=true', 'localhost', 'Bearer token-of-cam1', undefined],
      ['PUT', '/tunnels', 'localhost', 'Bearer token-of-cam1', '"a"'],
    ])
  })

  it.each([
    [404, { 'ngrok-error-code': 'ERR_NGROK_3200' }, '', /404 ERR_NGROK_3200/],
    [408, {}, problem('request-timeout'), /It says so/],
    [429, {}, problem('too-many-requests'), /It says so/],
    [502, {}, '', /status 502/],
    [503, {}, problem('shutting-down'), /It says so/],
  ])('is offline for now when it answers %i', async (status, headers, body, text) => {
    const error = await refusalOf(status, headers, body)
    expect(error).toBeInstanceOf(OfflineError)
    expect((error as Error).message).toMatch(text)
  })

  it.each([
    [401, problem('unauthenticated'), /token of the list: It says so\. .*provision --rotate/],
    [404, problem('not-found'), /no PUT \/tunnels/],
    [422, problem('policy-invalid'), /It says so\. \(policy-invalid\)/],
    [418, '', /status 418/],
    [200, '{}', /in a form that is not known here/],
  ])('has failed, with what to do, when it answers %i', async (status, body, text) => {
    const error = await refusalOf(status, {}, body)
    expect(error).toBeInstanceOf(StartError)
    expect((error as Error).message).toMatch(text)
  })

  it('says when somebody was faster', async () => {
    expect(await refusalOf(412, {}, problem('precondition-failed'))).toBeInstanceOf(OvertakenError)
  })

  it('says that its certificate is not trusted, and tells it nothing', async () => {
    let requests = 0
    const api = await startDevice(() => {
      requests += 1
    }, false)
    await expect(api.plan([])).rejects.toThrow(/is not trusted \(\w+\): name the CA/)
    expect(requests).toBe(0)
  })

  it('is offline when nobody answers', async () => {
    const api = await startDevice(({ socket }) => socket.destroy())
    await expect(api.plan([])).rejects.toBeInstanceOf(OfflineError)
  })
})
