import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { managed } from '../../helpers/managed-gateway.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

const VALUE = 'canary-9f2b7c41-of-the-vault'
const USE = "secrets.get('site', 'key')"
const text = (source: string) => `\${${source}}`
const rule = (type: string, config: object) => ({ actions: [{ type, config }] })
const prints = (source = USE) =>
  JSON.stringify({
    on_http_request: [rule('custom-response', { status_code: 200, body: text(source) })],
  })

/** A gateway with two accounts, each with a device, and a vault of the gateway's owner and of one account. */
async function startSite() {
  const running = await startGateway({ apiListen: { host: '127.0.0.1', port: 0 } })
  const { call } = await managed(running)
  const make = async (path: string, body: object, key?: string) => {
    const answer = await call('POST', path, body, key)
    expect([path, answer.status, answer.body]).toMatchObject([path, 201, {}])
    return answer.body
  }
  const account = async (name: string) => {
    const { id } = await make('/bot_users', { name })
    const domain = await make('/reserved_domains', { domain: `*.${name}.test`, owner_id: id })
    const credential = await make('/credentials', { owner_id: id })
    const { token: key } = await make('/api_keys', { owner_id: id, description: name })
    return { id, domain, credential, key }
  }
  const tenants = { press: await account('press'), oven: await account('oven') }
  const http = `http://127.0.0.1:${running.addresses.http.port}`
  const get = (host: string, headers: Record<string, string> = {}) =>
    publicRequest({ ingress: http, host, headers })
  const bind = async (
    { credential }: { credential: { token: string } },
    host: string,
    policy: string,
    options: object = {},
  ) => {
    const agent = await RawAgent.connect(running)
    await agent.auth(credential.token)
    return agent.bind(host, {
      Proto: 'http',
      Opts: { Domain: host, TrafficPolicy: policy, ...options },
    })
  }
  const secret = async (owner: string | null, body: object = {}, key?: string) => {
    const { id } = await make('/vaults', { name: 'site', owner_id: owner }, key)
    return make('/vault_secrets', { name: 'key', value: VALUE, vault_id: id, ...body }, key)
  }
  return { running, call, make, tenants, get, bind, secret }
}

/** Whether a file of a folder contains the value, as it is or in base64. */
function filesWith(folder: string): string[] {
  const forms = [VALUE, Buffer.from(VALUE).toString('base64').slice(0, 30)]
  return readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => {
    const path = join(folder, name)
    if (!statSync(path).isFile()) return false
    const content = readFileSync(path).toString('latin1')
    return forms.some((form) => content.includes(form))
  })
}

describe('a secret of the gateway owner', () => {
  it('is for nobody else until it names them', async () => {
    const { call, tenants, get, bind, secret } = await startSite()
    const { press, oven } = tenants
    const { id } = await secret(null)
    const refused = await bind(press, 'a.press.test', prints())
    expect(codeOf(refused)).toBe('ERR_NGROK_9026')
    expect(refused.Error).toContain(
      "/on_http_request/0/actions/0/config/body: secrets.get('site', 'key') cannot be used",
    )
    expect(refused.Error).toContain(
      `run \`device-agent gateway secrets allow --add site key ${press.credential.id}\` on`,
    )
    expect(refused.Error).toContain(
      `run \`device-agent gateway secrets set site key --allow ${press.credential.id}\` there`,
    )
    // The same words as for a secret that does not exist.
    const missing = await bind(press, 'a.press.test', prints("secrets.get('site', 'none')"))
    expect(String(missing.Error).replaceAll(/\bnone\b/g, 'key')).toBe(refused.Error)
    const { credential, domain } = press
    for (const [index, allowed] of [credential.id, press.id, domain.id].entries()) {
      const [host, allow] = [`a${index}.press.test`, [allowed]]
      const { status } = await call('PATCH', `/vault_secrets/${id}`, { allow })
      expect(status).toBe(200)
      expect(codeOf(await bind(oven, 'b.oven.test', prints()))).toBe('ERR_NGROK_9026')
      expect(codeOf(await bind(press, host, prints()))).toBeUndefined()
      expect((await get(host)).text).toBe(VALUE)
      // From the next request on it is gone again.
      await call('PATCH', `/vault_secrets/${id}`, { allow: [] })
      const after = await get(host)
      expect([after.status, after.text.includes(VALUE)]).toEqual([500, false])
    }
  })

  it('is not for the cloud endpoints of an account that it does not name', async () => {
    const { call, tenants, secret } = await startSite()
    const { press } = tenants
    const { id } = await secret(null)
    const endpoint = { url: 'http://c.press.test', traffic_policy: prints() }
    const refused = await call('POST', '/endpoints', endpoint, press.key)
    expect(refused.body).toMatchObject({ error_code: 'ERR_NGROK_24009' })
    expect(refused.body.msg).toContain('the account has no such secret')
    await call('PATCH', `/vault_secrets/${id}`, { allow: [press.id] })
    expect((await call('POST', '/endpoints', endpoint, press.key)).status).toBe(201)
    // Nor does the account see it.
    expect((await call('GET', '/vault_secrets', undefined, press.key)).body.secrets).toEqual([])
    expect((await call('GET', `/vault_secrets/${id}`, undefined, press.key)).status).toBe(404)
    const theft = { value: 'mine' }
    expect((await call('PATCH', `/vault_secrets/${id}`, theft, press.key)).status).toBe(404)
  })

  it('is not for a domain that somebody else has reserved since', async () => {
    const { call, tenants, bind, secret } = await startSite()
    const { press, oven } = tenants
    await secret(null, { allow: [press.domain.id] })
    await call('DELETE', `/reserved_domains/${press.domain.id}`)
    const again = { domain: '*.press.test', owner_id: oven.id }
    expect((await call('POST', '/reserved_domains', again)).status).toBe(201)
    expect(codeOf(await bind(oven, 'a.press.test', prints()))).toBe('ERR_NGROK_9026')
  })
})

describe('a secret of an account', () => {
  it('is for its own cloud endpoints, and for the device that it names', async () => {
    const { call, tenants, get, bind, secret } = await startSite()
    const { press, oven } = tenants
    const { id } = await secret(press.id, {}, press.key)
    const endpoint = { url: 'http://c.press.test', traffic_policy: prints() }
    expect((await call('POST', '/endpoints', endpoint, press.key)).status).toBe(201)
    expect((await get('c.press.test')).text).toBe(VALUE)
    expect(codeOf(await bind(press, 'a.press.test', prints()))).toBe('ERR_NGROK_9026')
    expect(codeOf(await bind(oven, 'b.oven.test', prints()))).toBe('ERR_NGROK_9026')
    await call('PATCH', `/vault_secrets/${id}`, { allow: [press.credential.id] }, press.key)
    expect(codeOf(await bind(press, 'a.press.test', prints()))).toBeUndefined()
    expect(codeOf(await bind(oven, 'b.oven.test', prints()))).toBe('ERR_NGROK_9026')
    // Options of an endpoint are policies, too.
    const credentials = [{ Username: 'u', Password: `12345678${text(USE)}` }]
    const options = { BasicAuth: { Credentials: credentials } }
    await bind(oven, 'd.oven.test', prints("'x'"), options)
    const { text: answer } = await get('d.oven.test')
    expect(answer).not.toContain(VALUE)
  })

  it('can only name what belongs to the account', async () => {
    const { call, tenants, secret, make } = await startSite()
    const { press, oven } = tenants
    const { id } = await secret(press.id, {}, press.key)
    const own = [press.id, press.credential.id, press.domain.id]
    expect((await call('PATCH', `/vault_secrets/${id}`, { allow: own }, press.key)).status).toBe(
      200,
    )
    for (const foreign of [oven.id, oven.credential.id, oven.domain.id, 'cr_none', 'x']) {
      for (const key of [press.key, undefined]) {
        const { body } = await call('PATCH', `/vault_secrets/${id}`, { allow: [foreign] }, key)
        expect([foreign, body.error_code]).toEqual([foreign, 'ERR_NGROK_215'])
      }
    }
    const short = await call('PATCH', `/vault_secrets/${id}`, { value: 'abc' }, press.key)
    expect(short.body).toMatchObject({ error_code: 'ERR_NGROK_24003' })
    // A vault of another account cannot be filled, renamed or emptied.
    const { vault } = (await call('GET', `/vault_secrets/${id}`)).body
    const into = { name: 'b', value: 'value', vault_id: vault.id }
    expect((await call('POST', '/vault_secrets', into, oven.key)).body.error_code).toBe(
      'ERR_NGROK_24006',
    )
    expect((await call('DELETE', `/vaults/${vault.id}`, undefined, oven.key)).status).toBe(404)
    expect((await call('DELETE', `/vault_secrets/${id}`, undefined, oven.key)).status).toBe(404)
    expect((await call('DELETE', `/vault_secrets/${id}/force`, undefined, oven.key)).status).toBe(
      404,
    )
    // The same names in another account are other secrets.
    await make('/vaults', { name: 'site' }, oven.key)
    await make('/vault_secrets', { name: 'key', value: 'other', vault_name: 'site' }, oven.key)
  })

  it('hides a name of the gateway owner from its own policies alone', async () => {
    const { call, tenants, get, secret } = await startSite()
    const { press, oven } = tenants
    await secret(null, { allow: [press.id, oven.id] })
    await secret(press.id, { value: 'of press' }, press.key)
    for (const [tenant, host] of [
      [press, 'c.press.test'],
      [oven, 'c.oven.test'],
    ] as const) {
      const endpoint = { url: `http://${host}`, traffic_policy: prints() }
      expect((await call('POST', '/endpoints', endpoint, tenant.key)).status).toBe(201)
    }
    expect((await get('c.press.test')).text).toBe('of press')
    expect((await get('c.oven.test')).text).toBe(VALUE)
  })
})

describe('the value of a secret', () => {
  it('is in no answer, log, event, metric or file', async () => {
    const { running, call, tenants, get, bind, secret } = await startSite()
    const { press } = tenants
    const { id } = await secret(press.id, { allow: [press.credential.id] })
    const policy = JSON.stringify({
      on_http_request: [
        rule('set-vars', { vars: [{ k: text(USE) }] }),
        rule('log', {
          metadata: { raw: text(USE), coded: text(`base64.encode(bytes('u:' + vars.k))`) },
        }),
        rule('add-headers', { headers: { 'x-key': text('vars.k') } }),
        rule('rate-limit', {
          name: 'by key',
          algorithm: 'sliding_window',
          capacity: 5,
          rate: '60s',
          bucket_key: [USE],
        }),
        {
          expressions: ["'fail' in req.url.query_params"],
          ...rule('http-request', { url: text(USE) }),
        },
        { expressions: ["'int' in req.url.query_params && int(vars.k) == 1"], ...rule('deny', {}) },
        rule('custom-response', { status_code: 204 }),
      ],
    })
    expect(codeOf(await bind(press, 'a.press.test', policy))).toBeUndefined()
    const url = `http://127.0.0.1:${running.addresses.http.port}`
    const ask = (path: string) => publicRequest({ ingress: url, host: 'a.press.test', path })
    expect((await ask('/')).status).toBe(204)
    const failures = [await ask('/?fail=1'), await ask('/?int=1')]
    expect(failures.map(({ status }) => status)).toEqual([500, 500])
    expect(failures.map((it) => it.text).join()).not.toContain(VALUE)
    await get('a.press.test')
    await call('PATCH', `/vault_secrets/${id}`, { value: `${VALUE}-2` })
    await call('PATCH', `/vault_secrets/${id}`, { value: `${VALUE}-3`, name: '' })
    await call('POST', '/vault_secrets', { name: 'key', value: VALUE, vault_id: 'vault_none' })
    await call('POST', '/vault_secrets', { name: 5, value: VALUE })
    await call('POST', '/batch', {
      requests: [{ path: 'vault_secrets', body: { name: 'key', value: VALUE, vault_name: 'no' } }],
    })
    const paths = ['/vault_secrets', `/vault_secrets/${id}`, '/vaults', '/audit', '/events']
    for (const path of [...paths, '/endpoints', '/devices', '/metrics', '/tunnels']) {
      const response = await fetch(`http://127.0.0.1:${running.addresses.api?.port}${path}`, {
        headers: { authorization: `Bearer ${press.key}`, 'svc-version': '2' },
      })
      const owners = path === '/metrics' ? '' : JSON.stringify((await call('GET', path)).body)
      expect([path, `${await response.text()}${owners}`.includes(VALUE)]).toEqual([path, false])
    }
    const { entries } = (await call('GET', '/audit')).body
    const update = { action: 'vault_secret.update', changes: { value_set_at: expect.anything() } }
    expect(entries).toContainEqual(expect.objectContaining(update))
    expect(running.logText()).toContain('policy log')
    expect(running.logText()).toContain('policy failed for a request')
    expect(running.logText()).not.toContain(VALUE)
    expect(running.logText()).not.toContain(
      Buffer.from(`u:${VALUE}`).toString('base64').slice(4, 30),
    )
    await running.gateway.stop()
    expect(filesWith(running.dataDir)).toEqual([])
  })

  it('changes with the next request, without a new policy', async () => {
    const { call, tenants, get, bind, secret } = await startSite()
    const { press } = tenants
    const { id } = await secret(press.id, { allow: [press.credential.id] })
    await bind(press, 'a.press.test', prints())
    const endpoint = { url: 'http://c.press.test', traffic_policy: prints() }
    await call('POST', '/endpoints', endpoint, press.key)
    expect((await get('a.press.test')).text).toBe(VALUE)
    await call('PATCH', `/vault_secrets/${id}`, { value: 'rotated' }, press.key)
    expect((await get('a.press.test')).text).toBe('rotated')
    expect((await get('c.press.test')).text).toBe('rotated')
  })
})

describe('a secret that is in use', () => {
  it('names 100 endpoints and tells how many there are', async () => {
    const { call, tenants, make, secret } = await startSite()
    const { press } = tenants
    const { id } = await secret(press.id)
    const traffic_policy = prints(`${USE} + ${USE}`)
    for (let n = 0; n < 102; n += 1) {
      await make('/endpoints', { url: `http://c${n}.press.test`, traffic_policy }, press.key)
    }
    const { body } = await call('GET', `/vault_secrets/${id}`)
    expect([body.used_by.length, body.used_by_count]).toEqual([100, 102])
    const refused = await call('DELETE', `/vault_secrets/${id}`)
    expect(refused.body.msg).toContain('and 97 more')
  })

  it('is deleted by force alone, and its cloud endpoint works when it is back', async () => {
    const { running, call, tenants, get, bind, secret } = await startSite()
    const { press } = tenants
    const { id } = await secret(press.id, { allow: [press.domain.id] })
    await bind(press, 'a.press.test', prints())
    const endpoint = { url: 'http://c.press.test', traffic_policy: prints() }
    await call('POST', '/endpoints', endpoint, press.key)
    const shown = (await call('GET', `/vault_secrets/${id}`)).body
    const urls = shown.used_by.map(({ url }: { url: string }) => new URL(url).hostname)
    expect(urls.sort()).toEqual(['a.press.test', 'c.press.test'])
    for (const [method, body] of [
      ['DELETE', undefined],
      ['PATCH', { name: 'other' }],
    ] as const) {
      const refused = await call(method, `/vault_secrets/${id}`, body, press.key)
      expect(refused).toMatchObject({ status: 409, body: { error_code: 'ERR_NGROK_24010' } })
      expect(refused.body.msg).toMatch(
        /a\.press\.test.*c\.press\.test|c\.press\.test.*a\.press\.test/,
      )
    }
    const renamed = await call('PATCH', `/vault_secrets/${id}`, { name: 'other' }, press.key)
    expect(renamed.body.msg).toContain('Create a secret with the new name')
    expect(renamed.body.msg).not.toContain('/force')
    const vaultPath = `/vaults/${shown.vault.id}`
    const moved = await call('PATCH', vaultPath, { name: 'other' }, press.key)
    expect(moved).toMatchObject({ status: 409, body: { error_code: 'ERR_NGROK_24010' } })
    const described = { name: 'site', description: 'of press' }
    expect((await call('PATCH', vaultPath, described, press.key)).status).toBe(200)
    const force = `/vault_secrets/${id}/force`
    expect((await call('DELETE', force, undefined, press.key)).status).toBe(204)
    expect((await get('c.press.test')).status).toBe(500)
    await running.gateway.stop()
    const again = await startGateway({
      dataDir: running.dataDir,
      apiListen: { host: '127.0.0.1', port: 0 },
    })
    const ingress = `http://127.0.0.1:${again.addresses.http.port}`
    expect((await publicRequest({ ingress, host: 'c.press.test' })).status).toBe(500)
    const api = await managed(again)
    const { id: vault } = (await api.call('GET', '/vaults')).body.vaults[0]
    await api.call('POST', '/vault_secrets', { name: 'key', value: 'back', vault_id: vault })
    expect((await publicRequest({ ingress, host: 'c.press.test' })).text).toBe('back')
  })
})
