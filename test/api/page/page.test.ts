import { readdirSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { IDLE_MS } from '../../../src/http/pages/browser-sessions.ts'
import { PageBrowser } from '../../helpers/page-browser.ts'
import { sendRequest } from '../../helpers/serve-http.ts'
import { API_TOKEN, startApi } from '../started-api.ts'

const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: 'device1.site.test' }
const SESSION = { session: { name: 'one-time code', scope: 'write', hostname: hostname() } }
const ASSETS = join(import.meta.dirname, '../../../src/api/page-assets')

async function startPage() {
  const api = await startApi()
  const browser = new PageBrowser(api.port)
  const newCode = () => api.codes.create().code.reveal()
  const signedIn = async () => {
    await browser.signIn({ code: newCode() })
    return browser
  }
  return { ...api, browser, newCode, signedIn }
}

describe('signing in to the page', () => {
  it('takes a one-time code once', async () => {
    const { browser, newCode, port } = await startPage()
    const code = newCode()
    const { status, json, headers } = await browser.signIn({ code })
    expect([status, json]).toEqual([201, SESSION])
    expect(String(headers['set-cookie'])).toMatch(
      /^device_page=[\w-]{43}; Path=\/page; HttpOnly; SameSite=Strict$/,
    )
    expect((await browser.call('GET', '/page/session')).json).toEqual(SESSION)
    expect((await browser.call('GET', '/page/api/status')).status).toBe(200)
    const again = await new PageBrowser(port).signIn({ code })
    expect([again.status, again.json.code]).toEqual([401, 'unauthenticated'])
    expect(again.headers['set-cookie']).toBeUndefined()
  })

  it('takes an API token, and lets it do what it may', async () => {
    const { browser, tokens } = await startPage()
    const reader = tokens.create({ name: 'viewer', scope: 'read', expiresAt: null })
    const { status, json } = await browser.signIn({ token: ` ${reader.secret.reveal()}\n` })
    expect([status, json]).toEqual([
      201,
      { session: { name: 'viewer', scope: 'read', hostname: hostname() } },
    ])
    expect((await browser.call('GET', '/page/api/tunnels?view=status')).status).toBe(200)
    const refused = await browser.call('POST', '/page/api/tunnels', { body: SPEC })
    expect([refused.status, refused.json.code]).toEqual([403, 'insufficient-scope'])
    await browser.signIn({ token: API_TOKEN })
    expect((await browser.call('POST', '/page/api/tunnels', { body: SPEC })).status).toBe(200)
  })

  it('ends a session with the token that opened it', async () => {
    const { browser, tokens } = await startPage()
    const made = tokens.create({ name: 'night', scope: 'write', expiresAt: null })
    await browser.signIn({ token: made.secret.reveal() })
    tokens.revoke(made.token.id)
    const { status, json } = await browser.call('GET', '/page/api/status')
    expect([status, json.code]).toEqual([401, 'unauthenticated'])
    expect((await browser.call('GET', '/page/session')).json).toEqual({ session: null })
  })

  it('ends a session that is signed out of', async () => {
    const { browser, signedIn } = await startPage()
    await signedIn()
    const { cookie } = browser
    expect((await browser.call('DELETE', '/page/session')).status).toBe(204)
    browser.cookie = cookie
    expect((await browser.call('GET', '/page/api/status')).status).toBe(401)
    expect(IDLE_MS).toBeLessThanOrEqual(30 * 60_000)
  })

  it('slows down who tries codes, and never the right one, once', async () => {
    const { browser, newCode } = await startPage()
    const statuses: number[] = []
    for (let n = 0; n < 11; n += 1) {
      statuses.push((await browser.signIn({ code: 'WRONG-CODE-0000' })).status)
    }
    expect(statuses).toEqual([...Array.from({ length: 10 }, () => 401), 429])
    // All users of the machine come from one address: none of them shuts the others out.
    const code = newCode()
    expect((await browser.signIn({ code })).status).toBe(201)
    const again = await browser.signIn({ code })
    expect([again.status, again.json.code]).toEqual([429, 'too-many-requests'])
    expect(Number(again.headers['retry-after'])).toBeGreaterThan(0)
  })

  it('slows down who tries tokens, and never the right one', async () => {
    const { browser } = await startPage()
    const statuses: number[] = []
    for (let n = 0; n < 12; n += 1) {
      statuses.push((await browser.signIn({ token: 'dagt_wrong' })).status)
    }
    expect(statuses.slice(9)).toEqual([401, 429, 429])
    expect((await browser.signIn({ token: API_TOKEN })).status).toBe(201)
  })

  it('notes who came and went, and says no secret', async () => {
    const { browser, newCode, trail, text } = await startPage()
    const code = newCode()
    await browser.signIn({ code: 'WRONG-CODE-0000' })
    await browser.signIn({ code })
    const id = browser.cookie?.split('=')[1] ?? ''
    expect(id).toHaveLength(43)
    await browser.call('POST', '/page/api/tunnels', { body: SPEC })
    await browser.call('DELETE', '/page/session')
    const page = { kind: 'page', id: null, name: 'one-time code' }
    expect(trail.page({ limit: 3 })).toMatchObject([
      { action: 'session.delete', actor: page, result: 'ok' },
      { action: 'tunnel.create', actor: page, client: '127.0.0.1', targetName: SPEC.domain },
      { action: 'session.create', actor: page, client: '127.0.0.1' },
    ])
    expect(text()).toContain('wrong code on the device page')
    expect(text()).not.toContain(code)
    expect(text()).not.toContain(id)
  })
})

describe('a session of the page', () => {
  it.each([
    ['another origin', { origin: 'https://evil.test', 'sec-fetch-site': 'cross-site' }],
    ['another service of the same machine', { 'sec-fetch-site': 'same-site' }],
    ['an old browser on another page', { origin: 'http://evil.test', 'sec-fetch-site': undefined }],
    ['somebody who says nothing', { 'sec-fetch-site': undefined }],
  ])('changes nothing for %s', async (_who, headers) => {
    const { signedIn, agent } = await startPage()
    const browser = await signedIn()
    for (const [method, path, body] of [
      ['POST', '/page/api/tunnels', SPEC],
      ['POST', '/page/session', { code: 'A' }],
      ['DELETE', '/page/session', undefined],
    ] as const) {
      const { status, json } = await browser.call(method, path, { body, headers })
      expect([status, json.code], path).toEqual([403, 'forbidden'])
    }
    expect(agent.list()).toEqual([])
    expect((await browser.call('GET', '/page/session')).json).toEqual(SESSION)
  })

  it('takes no form, which needs no leave to be sent', async () => {
    const { signedIn } = await startPage()
    const browser = await signedIn()
    const headers = { 'content-type': 'text/plain' }
    const { status } = await browser.call('POST', '/page/api/tunnels', { body: SPEC, headers })
    expect(status).toBe(415)
  })

  it('is no good for a name that leads here, as in DNS rebinding', async () => {
    const { signedIn, pagePort } = await startPage()
    const browser = await signedIn()
    for (const host of ['rebound.evil.test', 'device.local']) {
      for (const path of ['/page/', '/page/api/status', '/page/session']) {
        expect((await browser.call('GET', path, { headers: { host } })).status).toBe(421)
      }
      const lan = await sendRequest({ port: pagePort }, { path: '/page/', headers: { host } })
      expect(lan.status).toBe(421)
    }
  })

  it('opens the page alone, and not the API beside it', async () => {
    const { signedIn } = await startPage()
    const browser = await signedIn()
    for (const path of ['/tunnels', '/status', '/tokens']) {
      expect((await browser.call('GET', path)).status, path).toBe(401)
    }
    expect((await browser.call('GET', '/page/api/tokens')).status).toBe(404)
  })

  it.each(['/page/api/status', '/page/api/tunnels', '/page/api/log', '/page/api/doctor'])(
    'is wanted for %s; a token is not enough',
    async (path) => {
      const { browser } = await startPage()
      const headers = { authorization: `Bearer ${API_TOKEN}` }
      expect((await browser.call('GET', path, { headers })).status).toBe(401)
      browser.cookie = `device_page=${'x'.repeat(43)}`
      expect((await browser.call('GET', path)).status).toBe(401)
    },
  )
})

describe('where the page is served', () => {
  it('is this machine, and the network where that is asked for', async () => {
    const { port, pagePort, newCode, callPublic } = await startPage()
    for (const at of [port, pagePort]) {
      const page = await sendRequest({ port: at }, { path: '/page/' })
      expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8'])
    }
    const browser = new PageBrowser(pagePort)
    await browser.signIn({ code: newCode() })
    expect((await browser.call('GET', '/page/api/status')).status).toBe(200)
    expect((await callPublic('GET', '/page/')).status).toBe(404)
  })

  it('offers the network nothing else, whoever asks', async () => {
    const { pagePort } = await startPage()
    const headers = { authorization: `Bearer ${API_TOKEN}` }
    for (const path of ['/tunnels', '/status', '/tokens', '/healthz', '/openapi.json']) {
      const { status } = await sendRequest({ port: pagePort }, { path, headers })
      expect(status, path).toBe(404)
    }
  })

  it('leads browsers there that ask for nothing else', async () => {
    const { port } = await startPage()
    const { status, headers } = await sendRequest(
      { port },
      { path: '/', headers: { accept: 'text/html,*/*' } },
    )
    expect([status, headers.location]).toEqual([302, '/page/'])
    expect((await sendRequest({ port }, { path: '/' })).status).toBe(401)
  })

  it('lets only its own files run', async () => {
    const { port } = await startPage()
    const files = readdirSync(ASSETS, { recursive: true, encoding: 'utf8' }).filter((file) =>
      /\.(?:js|css|html)$/.test(file),
    )
    for (const file of [...files, 'element.js', 'styles/base.css', 'icon.svg']) {
      const { status, headers, text } = await sendRequest({ port }, { path: `/page/${file}` })
      expect([status, headers['x-content-type-options']], file).toEqual([200, 'nosniff'])
      expect(headers['content-security-policy']).toMatch(
        /^default-src 'none'; script-src 'self'; style-src 'self'; .*frame-ancestors 'none'$/,
      )
      expect(headers['content-security-policy']).not.toContain('unsafe')
      if (file.endsWith('.html')) expect(text).not.toMatch(/<script>|<style| on\w+=| style=/)
    }
  })
})

describe('codes for the page', () => {
  it('are made at the local socket, and nowhere else', async () => {
    const { call, callPublic, callLocal, browser, port, trail } = await startPage()
    for (const ask of [call, callPublic]) {
      expect((await ask('POST', '/page_codes')).status).toBe(404)
    }
    const { status, json } = await callLocal('POST', '/page_codes')
    expect([status, json]).toEqual([
      201,
      {
        code: expect.any(String),
        expires_at: expect.any(String),
        urls: [`http://127.0.0.1:${port}/page/`],
      },
    ])
    expect(trail.page({ limit: 1 })).toMatchObject([
      { action: 'page_code.create', actor: { kind: 'command-line' } },
    ])
    expect((await browser.signIn({ code: json.code })).status).toBe(201)
  })
})
