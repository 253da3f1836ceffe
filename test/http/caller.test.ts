import { describe, expect, it } from 'vitest'
import { FailureLimiter } from '../../src/base/limiter.ts'
import { bearerAuth, type Caller, callerOf } from '../../src/http/caller.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'

const CALLER: Caller = { actor: { kind: 'token', id: 'tok_1', name: 'crane' }, scope: 'read' }

async function guarded() {
  const clock = new ManualClock()
  const captured = captureLog()
  const auth = bearerAuth({
    realm: 'test',
    authenticate: (token) => (token === 'right' ? CALLER : token === 'old' ? 'ended' : undefined),
    failures: new FailureLimiter(clock),
    clientOf: (request) => request.get('x-client') ?? 'somebody',
    log: captured.log,
  })
  const app = appWith((it) =>
    it.use(auth).get('/', (_request, response) => void response.end(callerOf(response).actor.name)),
  )
  const { at } = await serveHttp(app)
  const ask = (authorization: string | undefined, client = 'somebody') =>
    sendRequest(at, {
      headers: { 'x-client': client, ...(authorization === undefined ? {} : { authorization }) },
    })
  return { ask, clock, captured }
}

describe('bearerAuth', () => {
  it.each(['Bearer right', 'bearer right', 'BEARER   right '])('lets %j in', async (header) => {
    expect((await (await guarded()).ask(header)).text).toBe('crane')
  })

  it.each([
    [undefined, 'Bearer realm="test"'],
    ['Bearer wrong', 'Bearer realm="test", error="invalid_token"'],
    ['Bearer', 'Bearer realm="test", error="invalid_token"'],
    ['Bearer right right', 'Bearer realm="test", error="invalid_token"'],
    ['Basic cmlnaHQ6', 'Bearer realm="test", error="invalid_token"'],
    ['right', 'Bearer realm="test", error="invalid_token"'],
  ])('keeps %j out and says how to come in', async (header, challenge) => {
    const { status, headers, json } = await (await guarded()).ask(header)
    expect([status, json.code]).toEqual([401, 'unauthenticated'])
    expect(headers['www-authenticate']).toBe(challenge)
  })

  it('tells the holder of a token that has ended', async () => {
    const { ask } = await guarded()
    const { status, json } = await ask('Bearer old')
    expect([status, json.detail]).toEqual([401, 'The token has expired.'])
  })

  it('slows a client down that keeps trying, and only that one', async () => {
    const { ask, clock } = await guarded()
    for (let attempt = 0; attempt < 10; attempt += 1) {
      expect((await ask('Bearer wrong', 'a')).status).toBe(401)
    }
    const { status, headers, json } = await ask('Bearer wrong', 'a')
    expect([status, json.code, headers['retry-after']]).toEqual([429, 'too-many-requests', '5'])
    expect((await ask('Bearer wrong', 'b')).status).toBe(401)
    await clock.advance(5_000)
    expect((await ask('Bearer wrong', 'a')).status).toBe(401)
  })

  it('never locks the holder of the token out, not even at the same address', async () => {
    const { ask } = await guarded()
    for (let attempt = 0; attempt < 20; attempt += 1) await ask('Bearer wrong', 'shared')
    expect((await ask('Bearer right', 'shared')).status).toBe(200)
  })

  it('does not count a request without any token', async () => {
    const { ask } = await guarded()
    for (let attempt = 0; attempt < 20; attempt += 1) {
      expect((await ask(undefined)).status).toBe(401)
    }
  })

  it('logs who tried, not what', async () => {
    const { ask, captured } = await guarded()
    await ask('Bearer canary-token', 'the-client')
    expect(captured.lines).toContainEqual(
      expect.objectContaining({ level: 'warn', client: 'the-client' }),
    )
    expect(captured.text()).not.toContain('canary-token')
  })
})
