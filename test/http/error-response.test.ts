import { describe, expect, it } from 'vitest'
import { AppError } from '../../src/base/app-error.ts'
import { methodNotAllowed } from '../../src/http/error-response.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

async function answerTo(thrown: unknown, path = '/') {
  const captured = captureLog()
  const app = appWith((it) => {
    it.get('/', () => {
      throw thrown
    })
    it.get('/late', async (_request, response) => {
      response.write('begun')
      throw thrown
    })
    it.get('/items/:id', (_request, response) => void response.end())
    it.all('/', methodNotAllowed('GET', 'HEAD'))
  }, captured)
  const { at } = await serveHttp(app)
  return { at, captured, answer: await sendRequest(at, { path }).catch((error) => error) }
}

describe('errorResponse', () => {
  it('writes an AppError as problem details', async () => {
    const { answer } = await answerTo(
      new AppError('service-refused', 'The service said no.', {
        serviceCode: 'ERR_NGROK_333',
        retryAfterS: 1.2,
        errors: [{ pointer: '/domain', detail: 'is not yours' }],
      }),
    )
    expect(answer.status).toBe(422)
    expect(answer.headers['content-type']).toBe('application/problem+json')
    expect(answer.headers['retry-after']).toBe('2')
    expect(answer.json).toEqual({
      type: 'urn:device-agent:problem:service-refused',
      title: 'Tunnel refused by the gateway',
      status: 422,
      detail: 'The service said no.',
      code: 'service-refused',
      request_id: answer.headers['x-request-id'],
      errors: [{ pointer: '/domain', detail: 'is not yours' }],
      service_code: 'ERR_NGROK_333',
    })
  })

  it('tells nothing of other errors and logs them once, under the id of the request', async () => {
    const { answer, captured } = await answerTo(new TypeError('canary-in-the-message'))
    expect([answer.status, answer.json.code]).toEqual([500, 'internal'])
    expect(answer.text).not.toMatch(/canary|TypeError|\.ts|\.js/)
    const logged = captured.lines.filter((line) => line.level === 'error')
    expect(logged).toHaveLength(1)
    expect(logged[0]).toMatchObject({ request_id: answer.headers['x-request-id'] })
  })

  it.each([['text'], [7], [{ status: 404, message: 'fake' }]])(
    'takes a thrown %j for a mistake of ours',
    async (thrown) => {
      expect((await answerTo(thrown)).answer.status).toBe(500)
    },
  )

  it('does not log what the caller did wrong', async () => {
    const { captured } = await answerTo(new AppError('not-found', 'No.'))
    expect(captured.lines).toEqual([])
  })

  it('cuts the answer off when it had begun', async () => {
    const { answer } = await answerTo(new Error('late'), '/late')
    expect(answer).toMatchObject({ code: 'ECONNRESET' })
  })

  it('takes a broken escape in the path for the mistake of the caller', async () => {
    const { answer } = await answerTo(undefined, '/items/%zz')
    expect([answer.status, answer.json.code]).toEqual([400, 'malformed-request'])
  })

  it('answers 404 for unknown paths and 405 with Allow for unknown methods', async () => {
    const { at } = await answerTo(new AppError('forbidden', 'No.'))
    expect((await sendRequest(at, { path: '/nothing' })).json.code).toBe('not-found')
    const { status, headers, json } = await sendRequest(at, { method: 'DELETE' })
    expect([status, headers.allow, json.code]).toEqual([
      405,
      'GET, HEAD, OPTIONS',
      'method-not-allowed',
    ])
    const options = await sendRequest(at, { method: 'OPTIONS' })
    expect([options.status, options.headers.allow]).toEqual([204, 'GET, HEAD, OPTIONS'])
  })
})

describe('requestId', () => {
  it.each([
    ['caller-id_1234', true],
    ['short', false],
    ['forged"}{"line', false],
    ['x'.repeat(65), false],
  ])('keeps the id %s of a caller: %s', async (id, kept) => {
    const { at } = await answerTo(new AppError('not-found', 'No.'))
    const { headers } = await sendRequest(at, { headers: { 'x-request-id': id } })
    expect(headers['x-request-id'] === id).toBe(kept)
    expect(headers['x-request-id']).toMatch(/^[\w-]{8,64}$/)
  })
})
