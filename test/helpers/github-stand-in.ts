import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import { OAUTH_PROVIDERS, type OAuthProvider } from '../../src/policy/login/oauth-client.ts'

export interface GithubUser {
  readonly id: number
  readonly login: string
  readonly name: string | null
  emails: readonly { email: string; primary: boolean; verified: boolean }[] | undefined
}

export interface GithubStandIn {
  /** Who is asked at the next sign-in. */
  user: GithubUser
  /** Access tokens that are not taken any more. */
  readonly revoked: Set<string>
  /** Whether access tokens come with another that gets a new one, once. */
  hasRefreshTokens: boolean
  readonly asked: readonly string[]
  readonly client: { readonly client_id: string; readonly client_secret: string }
}

const CLIENT = { client_id: 'Iv1.device', client_secret: 'secret of the client' }

/**
 * Answers as GitHub documents it: form or JSON as it is asked, errors with a status of 200, addresses
 * by a second request. The table of providers leads there until the test is over.
 */
export async function startGithub(): Promise<GithubStandIn> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const table = OAUTH_PROVIDERS as Record<string, OAuthProvider>
  const real = table.github as OAuthProvider
  table.github = {
    ...real,
    authorizationUrl: real.authorizationUrl.replace('https://github.com', origin),
    tokenUrl: real.tokenUrl.replace('https://github.com', origin),
    claims: (read, id) =>
      real.claims(
        (url, headers) => read(url.replace('https://api.github.com', origin), headers),
        id,
      ),
  }
  onTestFinished(async () => {
    table.github = real
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  const asked: string[] = []
  const github: GithubStandIn = {
    user: { id: 7, login: 'ann', name: 'Ann', emails: [] },
    revoked: new Set(),
    hasRefreshTokens: false,
    asked,
    client: CLIENT,
  }
  const codes = new Map<string, { challenge: string; redirectUri: string }>()
  const tokens = new Map<string, GithubUser>()
  const refreshing = new Map<string, GithubUser>()
  const issue = (user: GithubUser): Record<string, string> => {
    const token = `gho_${randomBytes(18).toString('hex')}`
    tokens.set(token, user)
    const answer = { access_token: token, token_type: 'bearer', scope: 'read:user,user:email' }
    if (!github.hasRefreshTokens) return answer
    const refresh_token = `ghr_${randomBytes(18).toString('hex')}`
    refreshing.set(refresh_token, user)
    return { ...answer, refresh_token }
  }
  server.on('request', async (request: IncomingMessage, response: ServerResponse) => {
    const url = new URL(request.url ?? '', origin)
    asked.push(url.pathname)
    const json = (status: number, body: unknown) =>
      response
        .writeHead(status, { 'content-type': 'application/json; charset=utf-8' })
        .end(JSON.stringify(body))
    if (url.pathname === '/login/oauth/authorize') {
      const query = url.searchParams
      const redirectUri = query.get('redirect_uri') ?? ''
      const code = randomBytes(10).toString('hex')
      codes.set(code, { challenge: query.get('code_challenge') ?? '', redirectUri })
      const back = new URL(redirectUri)
      back.search = new URLSearchParams({ code, state: query.get('state') ?? '' }).toString()
      response.writeHead(302, { location: back.href }).end()
    } else if (url.pathname === '/login/oauth/access_token') {
      const form = new URLSearchParams(await text(request))
      if (form.get('grant_type') === 'refresh_token') {
        const given = form.get('refresh_token') ?? ''
        const user = refreshing.get(given)
        refreshing.delete(given)
        if (user) json(200, issue(user))
        else json(200, { error: 'bad_refresh_token', error_description: 'It is spent.' })
        return
      }
      const code = codes.get(form.get('code') ?? '')
      codes.delete(form.get('code') ?? '')
      const verifier = createHash('sha256').update(form.get('code_verifier') ?? '')
      const isGood =
        form.get('client_id') === CLIENT.client_id &&
        form.get('client_secret') === CLIENT.client_secret &&
        code?.redirectUri === form.get('redirect_uri') &&
        code?.challenge === verifier.digest('base64url')
      if (!isGood) {
        json(200, { error: 'bad_verification_code', error_description: 'The code is incorrect.' })
        return
      }
      const answer = issue(github.user)
      if (request.headers.accept?.includes('json')) json(200, answer)
      else response.end(new URLSearchParams(answer).toString())
    } else {
      const token = request.headers.authorization?.replace(/^Bearer /i, '') ?? ''
      const user =
        github.revoked.has(token) || github.revoked.has('all') ? undefined : tokens.get(token)
      if (!user || !request.headers['user-agent']) json(401, { message: 'Bad credentials' })
      else if (url.pathname === '/user') {
        const { emails: _emails, ...profile } = user
        json(200, { ...profile, email: 'public@else.test', type: 'User' })
      } else if (user.emails) json(200, user.emails)
      else json(404, { message: 'Not Found' })
    }
  })
  return github
}
