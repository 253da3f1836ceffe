import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { BusyError, OfflineError, OvertakenError } from '../../../src/cli/fleet/device-api.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startDevice } from '../../helpers/fleet-device.ts'

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

  it('is understood when it is newer, and says more', async () => {
    const tunnel = {
      ...{ action: 'keep', domain: 'a.test', changes: { news: { of: 'it' } }, url: null },
      ...{ state: 'dreaming', reason: null, mood: 'good' },
    }
    const api = await startDevice((_request, response) => {
      response.end(JSON.stringify({ dry_run: false, etag: '"b"', weather: 1, tunnels: [tunnel] }))
    })
    expect(await api.plan([])).toEqual({
      etag: '"b"',
      tunnels: [
        {
          ...{ action: 'keep', domain: 'a.test', changes: { news: { of: 'it' } }, url: null },
          ...{ state: 'dreaming', last_error: null, remedy: null },
        },
      ],
    })
  })

  it('is offline while what answers has no certificate for its name', async () => {
    const api = await startDevice(() => {}, true, 'cam1.other.test')
    const error = await api.plan([]).catch((it: unknown) => it)
    expect(error).toBeInstanceOf(OfflineError)
    expect((error as Error).message).toMatch(
      /the certificate at cam1\.other\.test is for other names/,
    )
  })

  it('sends no response without an end into memory', async () => {
    let isEnded = false
    const api = await startDevice((_request, response) => {
      const piece = Buffer.alloc(1_048_576, ' ')
      response.on('close', () => {
        isEnded = true
      })
      const fill = () => {
        while (response.write(piece)) {}
      }
      response.on('drain', fill)
      fill()
    })
    const error = await api.plan([]).catch((it: unknown) => it)
    expect((error as Error).message).toMatch(/longer than 33554432 bytes/)
    await eventually(() => expect(isEnded).toBe(true))
  })

  it('is offline when it does not answer in time', async () => {
    const api = await startDevice(() => {}, true, 'localhost', { timeoutMs: 50 })
    const error = await api.plan([]).catch((it: unknown) => it)
    expect(error).toBeInstanceOf(OfflineError)
    expect((error as Error).message).toBe('Not within 50 ms')
  })

  it('is left at once by a command that stops', async () => {
    const stopping = new AbortController()
    const onRequest = () => stopping.abort()
    const api = await startDevice(onRequest, true, 'localhost', { stop: stopping.signal })
    await expect(api.plan([])).rejects.toThrow('Stopped before the end.')
  })

  it('follows no redirect', async () => {
    const error = await refusalOf(307, { location: 'https://localhost:1/' })
    expect((error as Error).message).toBe('The device returned status 307.')
  })

  it('is offline when the service says so', async () => {
    const error = await refusalOf(404, { 'ngrok-error-code': 'ERR_NGROK_3200' })
    expect(error).toBeInstanceOf(OfflineError)
    expect(error).not.toBeInstanceOf(BusyError)
    expect((error as Error).message).toMatch(/404 ERR_NGROK_3200/)
  })

  it.each([
    [408, {}, problem('request-timeout'), undefined],
    [425, {}, '', undefined],
    [429, { 'retry-after': '7' }, problem('too-many-requests'), 7],
    [502, {}, '', undefined],
    [503, { 'retry-after': '0' }, problem('shutting-down'), 0],
    [504, { 'retry-after': 'Sun, 22 Nov 2026 15:00:00 GMT' }, '', undefined],
  ])('is busy for a moment when it answers %i', async (status, headers, body, retryAfterS) => {
    const error = await refusalOf(status, headers, body)
    expect(error).toBeInstanceOf(BusyError)
    expect(error).toMatchObject({ retryAfterS })
    expect((error as Error).message).toMatch(body === '' ? `status ${status}` : 'It says so.')
  })

  it.each([
    [401, problem('unauthenticated'), /token of the list: It says so\. .*provision --rotate/],
    [404, problem('not-found'), /PUT \/tunnels is not supported/],
    [422, problem('policy-invalid'), /It says so\. \(policy-invalid\)/],
    [418, '', /status 418/],
    [429, JSON.stringify({ code: 'too-many-requests', detail: 'Too many wrong tokens.' }), /wrong/],
    [501, '', /status 501/],
    [505, '', /status 505/],
    [507, problem('storage-full'), /It says so\. \(storage-full\)/],
    [200, '{}', /has an unknown format/],
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
    await expect(api.plan([])).rejects.toThrow(/is not trusted \(\w+\)\. Set connect.ca to the CA/)
    expect(requests).toBe(0)
  })

  it('is busy when the connection breaks off', async () => {
    const api = await startDevice(({ socket }) => socket.destroy())
    await expect(api.plan([])).rejects.toBeInstanceOf(BusyError)
  })

  it('ends its token, also one that has ended', async () => {
    const answers = [
      { status: 204, headers: {} },
      { status: 404, headers: {} },
      { status: 404, headers: { 'ngrok-error-code': 'ERR_NGROK_3200' } },
    ]
    const api = await startDevice((_request, response) => {
      const { status = 500, headers } = answers.shift() ?? {}
      response.writeHead(status, headers).end()
    })
    await api.revokeToken()
    await api.revokeToken()
    await expect(api.revokeToken()).rejects.toBeInstanceOf(OfflineError)
  })
})
