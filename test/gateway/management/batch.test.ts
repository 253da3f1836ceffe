import { describe, expect, it } from 'vitest'
import { type ApiAnswer, startManagementApi } from '../../helpers/management-client.ts'

interface Entry {
  readonly action: string
  readonly target: { readonly name: string | null }
  readonly result: string
}

const user = (name: string) => ({ path: 'bot_users', body: { name } })

async function startSite() {
  const site = await startManagementApi()
  const batch = async (requests: unknown, key = site.key) => {
    const { status, body } = await site.call('POST', '/batch', { key, body: { requests } })
    return { status, body, answers: body.responses as Pick<ApiAnswer, 'status' | 'body'>[] }
  }
  return { ...site, batch }
}

describe('POST /batch', () => {
  it('makes each, and answers each as if it had come alone', async () => {
    const { batch, call, authority } = await startSite()
    const { status, answers } = await batch([
      user('cam1'),
      { path: 'reserved_domains', body: { domain: '*.site.test' } },
      { path: 'credentials', body: { acl: ['bind:*.site.test'] } },
    ])
    expect([status, answers.map((it) => it.status)]).toEqual([200, [201, 201, 201]])
    const [bot, , credential] = answers.map(({ body }) => body)
    expect((await call('GET', `/bot_users/${bot.id}`)).body).toMatchObject(bot)
    expect(authority.authenticate(credential.token).id).toBe(credential.id)
  })

  it('makes the others when some are refused, and says why', async () => {
    const { batch, botUsers } = await startSite()
    const { answers } = await batch([
      user('cam1'),
      user('cam1'),
      { path: 'bot_users', body: { nome: 'cam2' } },
      { path: 'tunnel_sessions', body: {} },
      { path: 'batch', body: {} },
      user('cam3'),
    ])
    expect(
      answers.map(({ status, body }) => [status, body.error_code ?? body.msg ?? body.name]),
    ).toEqual([
      [201, 'cam1'],
      [400, 'ERR_NGROK_4112'],
      [400, 'ERR_NGROK_214'],
      [404, 'ERR_GATEWAY_NOT_FOUND'],
      [404, 'ERR_GATEWAY_NOT_FOUND'],
      [201, 'cam3'],
    ])
    expect(botUsers.page({ limit: 9 }).map(({ name }) => name)).toEqual(['cam3', 'cam1'])
  })

  it('is audited thing by thing', async () => {
    const { batch, call } = await startSite()
    await batch([user('cam1'), user('cam1')])
    const { entries } = (await call('GET', '/audit')).body
    expect(
      (entries as Entry[]).map(({ action, target, result }) => [action, target.name, result]),
    ).toEqual([
      ['bot_user.create', 'cam1', 'ERR_NGROK_4112'],
      ['bot_user.create', 'cam1', 'ok'],
    ])
  })

  it('lets nobody make what may not be made alone', async () => {
    const { batch, issuer } = await startSite()
    const { id: ownerId } = await issuer.createBotUser({ name: 'cam1' })
    const own = (await issuer.createApiKey({ ownerId })).token
    const { answers } = await batch([user('cam2'), { path: 'credentials', body: {} }], own)
    expect(answers.map(({ status }) => status)).toEqual([403, 201])
    expect(answers[1]?.body.owner_id).toBe(ownerId)
    const reader = (await issuer.createApiKey({ scope: 'read' })).token
    expect((await batch([user('cam2')], reader)).body.error_code).toBe('ERR_GATEWAY_KEY_SCOPE')
  })

  it.each([[[]], [Array(101).fill(user('cam'))], [[{ path: 'bot_users' }]], ['all']])(
    'refuses a batch as a whole that is none',
    async (requests) => {
      const { batch, botUsers } = await startSite()
      const { status, body } = await batch(requests)
      expect([status, body.error_code]).toEqual([400, 'ERR_NGROK_215'])
      expect(botUsers.page({ limit: 1 })).toEqual([])
    },
  )

  it('counts each of many as a tenth of a request', async () => {
    const { batch } = await startSite()
    let requests = 0
    while ((await batch(Array(100).fill({ path: 'nothing', body: {} }))).status === 200)
      requests += 1
    // 300 at once, of which each takes one and ten.
    expect(requests).toBe(28)
  })
})
