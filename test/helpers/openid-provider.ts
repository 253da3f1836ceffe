import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { Provider } from 'oidc-provider'
import { onTestFinished, vi } from 'vitest'

/** What the provider says of its users, by their login; `rights` can be changed while it runs. */
export interface ProviderUser {
  email?: string
  email_verified?: boolean
  name?: string
  groups?: readonly string[]
}

export interface OpenidProviderOptions {
  readonly redirectUris: readonly string[]
  readonly users: Readonly<Record<string, ProviderUser>>
  /** As the provider's own documentation names it. */
  readonly authMethod?: 'client_secret_basic' | 'client_secret_post' | 'none'
}

export interface OpenidProvider {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: string
  /** Paths that were asked for, in turn. */
  readonly asked: readonly string[]
  /** What stands before the answer of each request, such as one that never comes. */
  hold: ((path: string) => Promise<void>) | undefined
  stop(): Promise<void>
}

/** A key of RSA takes up to a second; all providers of a worker sign with one. */
const { privateKey: KEY } = generateKeyPairSync('rsa', { modulusLength: 2_048 })
const CLIENT_ID = 'devices'
const CLIENT_SECRET = 'a secret: of 100 % the client'

/** A certified provider (oidc-provider) on loopback, whose users sign in by a form. */
export async function startOpenidProvider(options: OpenidProviderOptions): Promise<OpenidProvider> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const stop = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  onTestFinished(stop)
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = createProvider(issuer, options)
  const asked: string[] = []
  const running: OpenidProvider = {
    issuer,
    clientId: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    asked,
    hold: undefined,
    stop,
  }
  const serve = provider.callback()
  server.on('request', async (request: IncomingMessage, response: ServerResponse) => {
    const { url = '' } = request
    const [path = ''] = url.split('?')
    asked.push(path)
    await running.hold?.(path)
    if (path.startsWith('/interaction/')) await interact(provider, request, response)
    else await serve(request, response)
  })
  return running
}

function createProvider(issuer: string, options: OpenidProviderOptions): Provider {
  // It says at length that it keeps what it knows in memory.
  const quiet = [vi.spyOn(console, 'warn'), vi.spyOn(console, 'info')]
  for (const spy of quiet) spy.mockImplementation(() => {})
  const { authMethod = 'client_secret_basic', users } = options
  return new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT_ID,
        ...(authMethod !== 'none' && { client_secret: CLIENT_SECRET }),
        token_endpoint_auth_method: authMethod,
        redirect_uris: options.redirectUris,
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
      },
    ],
    ...(authMethod !== 'client_secret_basic' && { clientAuthMethods: [authMethod] }),
    cookies: { keys: ['a key of the provider'] },
    jwks: { keys: [{ ...KEY.export({ format: 'jwk' }), kid: 'one', use: 'sig' }] },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    scopes: ['openid', 'profile', 'email', 'groups', 'offline_access'],
    claims: {
      openid: ['sub'],
      email: ['email', 'email_verified'],
      profile: ['name'],
      groups: ['groups'],
    },
    issueRefreshToken: () => true,
    findAccount: (_: unknown, id: string) =>
      users[id] && { accountId: id, claims: () => ({ sub: id, ...users[id] }) },
  })
}

/** The pages of the provider: who one is, then whether that may be told. */
async function interact(
  provider: Provider,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { prompt, params, session } = await provider.interactionDetails(request, response)
  if (request.method !== 'POST') {
    response.end(prompt.name)
    return
  }
  const answer = new URLSearchParams(await text(request))
  if (answer.has('abort')) {
    const result = { error: 'access_denied', error_description: 'not "today",\r\nthank you' }
    await provider.interactionFinished(request, response, result, {
      mergeWithLastSubmission: false,
    })
  } else if (prompt.name === 'login') {
    const result = { login: { accountId: answer.get('login') } }
    await provider.interactionFinished(request, response, result, {
      mergeWithLastSubmission: false,
    })
  } else {
    const { accountId } = session ?? {}
    const grant = new provider.Grant({ accountId, clientId: params.client_id })
    grant.addOIDCScope((prompt.details.missingOIDCScope ?? []).join(' '))
    const result = { consent: { grantId: await grant.save() } }
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true })
  }
}
