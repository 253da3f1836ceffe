// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type ExchangeParts,
  onRequest,
  PolicyBench,
  replyOf,
} from '../../helpers/policy-exchange.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const ISSUER = 'https://issuer.example.com/'
const NOW = Date.UTC(2030, 0, 1) / 1_000

async function createKey(kid: string) {
  const { privateKey, publicKey } = await generateKeyPair('ES256')
  return { kid, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg: 'ES256' } }
}

const key = await createKey('one')
const later = await createKey('two')

const sign = (claims: JWTPayload = {}, { privateKey, kid } = key) =>
  new SignJWT({ sub: 'device 7', ...claims })
    .setProtectedHeader({ alg: 'ES256', kid })
    .setIssuer(claims.iss ?? ISSUER)
    .setIssuedAt(NOW)
    .setExpirationTime(claims.exp ?? NOW + 60)
    .sign(privateKey)

function keyFile(...keys: (typeof key)[]): string {
  const path = join(temporaryFolder(), 'jwks.json')
  writeFileSync(path, JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }))
  return pathToFileURL(path).href
}

const config = (source: string, changes: Record<string, unknown> = {}) => ({
  issuer: { allow_list: [{ value: 'https://other.example.com/' }, { value: ISSUER }] },
  http: { tokens: [{ type: 'jwt', method: 'header', name: 'Authorization', prefix: 'Bearer ' }] },
  jws: { allowed_algorithms: ['ES256'], keys: { sources: { additional_jkus: [source] } } },
  ...changes,
})

const bench = (source = keyFile(key), changes?: Record<string, unknown>) =>
  new PolicyBench(onRequest('jwt-validation', config(source, changes)), {
    mayDial: ({ address }) => address === '127.0.0.1',
    mayRead: () => true,
  })

const bearing = (token: string): ExchangeParts => ({
  headers: ['Authorization', `Bearer ${token}`],
})

interface Result {
  readonly tokens: readonly {
    readonly header: ReadonlyMap<string, unknown>
    readonly payload: ReadonlyMap<string, unknown>
  }[]
  readonly error: { readonly code: string }
}

async function answerOf(policy: PolicyBench, parts: ExchangeParts) {
  const { outcome, exchange } = await policy.request(parts)
  const result = exchange.results.get('jwt_validation') as unknown as Result
  return {
    status: outcome.kind === 'respond' ? outcome.reply.status : 200,
    code: result.error.code,
    result,
    outcome,
  }
}

describe('jwt-validation', () => {
  it('lets pass a token of a key in a file, and leaves its parts', async () => {
    const token = await sign({ role: 'admin' })
    const { status, result } = await answerOf(bench(), bearing(token))
    expect(status).toBe(200)
    expect(result.error).toEqual({ code: '', message: '' })
    expect(result.tokens[0]).toMatchObject({
      location: 'header',
      location_property: 'Authorization',
      signature: token.split('.')[2],
      verified: true,
    })
    expect(result.tokens[0]?.header.get('kid')).toBe('one')
    expect(result.tokens[0]?.payload.get('role')).toBe('admin')
  })

  it('gives later rules the claims', async () => {
    const document = {
      on_http_request: [
        {
          actions: [
            { type: 'jwt-validation', config: config(keyFile(key)) },
            {
              type: 'add-headers',
              config: {
                headers: { 'x-user': '${actions.ngrok.jwt_validation.tokens[0].payload.sub}' },
              },
            },
          ],
        },
      ],
    }
    const policy = new PolicyBench(document, { mayRead: () => true })
    const { exchange } = await policy.request(bearing(await sign()))
    expect(exchange.request?.headers.get('x-user')).toBe('device 7')
  })

  it('says that a token has expired, or is not valid yet', async () => {
    const messageOf = async (claims: { exp?: number; nbf?: number }) => {
      const answer = await answerOf(bench(), bearing(await sign(claims)))
      return replyOf(answer.outcome).body
    }
    expect(await messageOf({ exp: NOW - 1 })).toContain('The token has expired.')
    expect(await messageOf({ nbf: NOW + 60 })).toContain('The token is not valid yet.')
  })

  it.each([
    ['no token', async () => ({}), 401, 'ERR_NGROK_3408'],
    [
      'another prefix',
      async () => ({ headers: ['Authorization', `Token ${await sign()}`] }),
      401,
      'ERR_NGROK_3413',
    ],
    ['no JWT', async () => bearing('abc'), 401, 'ERR_NGROK_3416'],
    [
      'a token that is over',
      async () => bearing(await sign({ exp: NOW - 1 })),
      401,
      'ERR_NGROK_3401',
    ],
    [
      'a token of an unknown key',
      async () => bearing(await sign({}, later)),
      401,
      'ERR_NGROK_3401',
    ],
    [
      'a token with another signature',
      async () => bearing(`${(await sign()).slice(0, -8)}AAAAAAAA`),
      401,
      'ERR_NGROK_3401',
    ],
    [
      'an issuer that is not allowed',
      async () => bearing(await sign({ iss: 'https://issuer.example.com' })),
      403,
      'ERR_NGROK_3403',
    ],
    [
      'an unsigned token',
      async () =>
        bearing('eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLmNvbS8ifQ.'),
      401,
      'ERR_NGROK_3401',
    ],
  ] as const)('refuses %s', async (_, request, status, code) => {
    const answer = await answerOf(bench(), (await request()) as ExchangeParts)
    expect([answer.status, answer.code]).toEqual([status, code])
    const reply = replyOf(answer.outcome)
    expect(reply.headers.get('www-authenticate')).toBe(status === 401 ? 'Bearer' : undefined)
    expect(answer.result.tokens[0]).toMatchObject({ verified: false })
  })

  it('takes only algorithms that are allowed', async () => {
    const jws = {
      allowed_algorithms: ['RS256'],
      keys: { sources: { additional_jkus: [keyFile(key)] } },
    }
    expect((await answerOf(bench(undefined, { jws }), bearing(await sign()))).status).toBe(401)
  })

  it('wants one of the audiences when some are listed', async () => {
    const policy = bench(undefined, { audience: { allow_list: [{ value: 'a' }, { value: 'b' }] } })
    expect((await answerOf(policy, bearing(await sign({ aud: ['x', 'b'] })))).status).toBe(200)
    expect((await answerOf(policy, bearing(await sign({ aud: 'c' })))).status).toBe(403)
    expect((await answerOf(policy, bearing(await sign()))).status).toBe(403)
  })

  it('computes issuers', async () => {
    const policy = bench(undefined, { issuer: { allow_list: [{ value: 'https://${req.host}/' }] } })
    const parts = { ...bearing(await sign()), url: 'https://issuer.example.com/x' }
    expect((await answerOf(policy, parts)).status).toBe(200)
  })

  it('wants every token that is listed', async () => {
    const tokens = [
      { type: 'jwt', method: 'header', name: 'authorization', prefix: 'bearer ' },
      { type: 'id_token', method: 'header', name: 'X-Id' },
    ]
    const policy = bench(undefined, { http: { tokens } })
    const headers = ['Authorization', `Bearer ${await sign()}`]
    expect((await answerOf(policy, { headers })).status).toBe(401)
    expect((await answerOf(policy, { headers: [...headers, 'x-id', await sign()] })).status).toBe(
      200,
    )
  })

  describe('of tokens in bodies', () => {
    const tokens = [{ type: 'access_token', method: 'body', name: 'token' }]
    const type = (value: string) => ['Content-Type', value]

    it.each([
      [
        'JSON',
        'POST',
        'application/json; charset=utf-8',
        (token: string) => JSON.stringify({ Token: token }),
      ],
      [
        'a form',
        'PUT',
        'application/x-www-form-urlencoded',
        (token: string) => `a=1&token=${token}`,
      ],
      [
        'a form whose field is written otherwise',
        'POST',
        'application/x-www-form-urlencoded',
        (token: string) => `a=1&ToKen=${token}&TOKEN=x`,
      ],
    ])('reads %s', async (_, method, contentType, write) => {
      const body = write(await sign())
      const policy = bench(undefined, { http: { tokens } })
      expect((await answerOf(policy, { method, body, headers: type(contentType) })).status).toBe(
        200,
      )
    })

    it.each([
      ['GET', 'application/json', '{"token": "x"}'],
      ['POST', 'text/plain', '{"token": "x"}'],
      ['POST', 'application/json', '{'],
      ['POST', 'application/json', '{"token": 1}'],
      ['POST', 'application/json', '[]'],
      ['POST', 'application/json', `{"token": "${'x'.repeat(262_144)}"}`],
    ])('finds none in a %s of %s', async (method, contentType, body) => {
      const policy = bench(undefined, { http: { tokens } })
      const answer = await answerOf(policy, { method, body, headers: type(contentType) })
      expect([answer.status, answer.code]).toEqual([401, 'ERR_NGROK_3406'])
    })
  })
})

describe('sources of keys', () => {
  async function serveKeys() {
    const served = { keys: [key], status: 200, requests: 0 }
    const server = createServer((_, response) => {
      served.requests += 1
      response
        .writeHead(served.status)
        .end(JSON.stringify({ keys: served.keys.map(({ jwk }) => jwk) }))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void server.close().closeAllConnections())
    return { served, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks.json` }
  }

  it('are asked once for many requests, and again after 15 minutes', async () => {
    const { served, url } = await serveKeys()
    const policy = bench(url)
    const token = await sign({ exp: NOW + 86_400 })
    await Promise.all([1, 2, 3].map(() => answerOf(policy, bearing(token))))
    expect((await answerOf(policy, bearing(token))).status).toBe(200)
    expect(served.requests).toBe(1)
    await policy.clock.advance(15 * 60_000)
    expect((await answerOf(policy, bearing(token))).status).toBe(200)
    expect(served.requests).toBe(2)
  })

  it('are asked again for a key that is new, but not by everybody who makes one up', async () => {
    const { served, url } = await serveKeys()
    const policy = bench(url)
    const token = await sign({ exp: NOW + 600 }, later)
    expect((await answerOf(policy, bearing(token))).status).toBe(401)
    served.keys = [key, later]
    expect((await answerOf(policy, bearing(token))).status).toBe(401)
    expect(served.requests).toBe(1)
    await policy.clock.advance(30_000)
    expect((await answerOf(policy, bearing(token))).status).toBe(200)
    expect(served.requests).toBe(2)
  })

  it('serve old keys while they cannot be read', async () => {
    const { served, url } = await serveKeys()
    const policy = bench(url)
    const token = await sign({ exp: NOW + 86_400 })
    await answerOf(policy, bearing(token))
    served.status = 500
    await policy.clock.advance(15 * 60_000)
    expect((await answerOf(policy, bearing(token))).status).toBe(200)
    expect((await answerOf(policy, bearing(token))).status).toBe(200)
    expect(served.requests).toBe(2)
  })

  it.each([
    ['a file that is not there', () => 'file:///nowhere/jwks.json'],
    ['a folder', () => pathToFileURL(temporaryFolder()).href],
    [
      'a file without keys',
      () => {
        const path = join(temporaryFolder(), 'no-keys.json')
        writeFileSync(path, '{"keys": "none"}')
        return pathToFileURL(path).href
      },
    ],
    [
      'a file that is too large',
      () => {
        const path = join(temporaryFolder(), 'large.json')
        writeFileSync(path, ' '.repeat(262_145))
        return pathToFileURL(path).href
      },
    ],
    ['an address that policies may not reach', () => 'http://127.0.0.2:9/'],
  ])('fail closed with %s', async (_, source) => {
    const answer = await answerOf(bench(source()), bearing(await sign()))
    expect([answer.status, answer.code]).toEqual([401, 'ERR_NGROK_3422'])
  })

  it('are tried in order', async () => {
    const jws = (sources: string[]) => ({
      jws: { allowed_algorithms: ['ES256'], keys: { sources: { additional_jkus: sources } } },
    })
    const policy = bench(undefined, jws([keyFile(later), 'file:///nowhere', keyFile(key)]))
    expect((await answerOf(policy, bearing(await sign()))).status).toBe(200)
  })

  it('are read from files that the gateway allows alone', async () => {
    const file = keyFile(key)
    const document = onRequest('jwt-validation', config(file))
    const compile = (mayRead?: (path: string) => boolean) =>
      new PolicyBench(document, { ...(mayRead && { mayRead }) })
    const token = await sign()
    const allowed = compile((path) => pathToFileURL(path).href === file)
    expect((await answerOf(allowed, bearing(token))).status).toBe(200)
    expect((await answerOf(compile(), bearing(token))).status).toBe(401)
    expect(() => compile(() => false)).toThrow(
      /GATEWAY_OUTBOUND_ALLOW does not allow policies to read .*jwks\.json/,
    )
  })

  it.each(['file://host/jwks.json', 'file:///a%2Fb'])('refuse %s, which is no file', (source) => {
    expect(() => bench(source)).toThrow('is not a file URL. Write file:///path.')
  })

  it('are not read from a file that says it is empty and has no end', async () => {
    const policy = bench('file:///proc/self/pagemap')
    expect((await answerOf(policy, bearing(await sign()))).status).toBe(401)
  })

  it('are read again when a file has changed, after a while', async () => {
    const folder = temporaryFolder()
    mkdirSync(folder, { recursive: true })
    const path = join(folder, 'jwks.json')
    writeFileSync(path, JSON.stringify({ keys: [key.jwk] }))
    const policy = bench(pathToFileURL(path).href)
    await answerOf(policy, bearing(await sign()))
    writeFileSync(path, JSON.stringify({ keys: [later.jwk] }))
    await policy.clock.advance(30_000)
    expect((await answerOf(policy, bearing(await sign({}, later)))).status).toBe(200)
  })
})
