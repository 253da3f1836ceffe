import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { localPath, ownPath, siteOf } from '../../../src/policy/login/login-flow.ts'
import { createExchange } from '../../helpers/policy-exchange.ts'

const ORIGIN = 'https://cam.test:8443'

describe('localPath()', () => {
  it.each([
    ['/', '/'],
    ['/a/b?c=%2F%2Fd', '/a/b?c=%2F%2Fd'],
    ['/a?next=https://evil.test', '/a?next=https://evil.test'],
    ['//evil.test', '/'],
    ['//evil.test/a?b=c', '/'],
    ['/\\evil.test', '/'],
    ['/\n/evil.test', '/'],
    ['\\\\evil.test', '/'],
    ['https://evil.test', '/'],
    ['https://cam.test:8443/a', '/'],
    ['javascript:alert(1)', '/'],
    ['', '/'],
    ['*', '/'],
    ['/ngrok/logout', '/'],
    ['/x/../ngrok/callback?code=1', '/'],
    ['/ngrok/others', '/ngrok/others'],
  ])('of %j is %j', (text, path) => {
    expect(localPath(text, ORIGIN)).toBe(path)
  })

  it('never leads to another origin', () => {
    const piece = fc.constantFrom(
      '/',
      '\\',
      '\t',
      '\n',
      '.',
      '@',
      ':',
      'evil.test',
      'https:',
      '?',
      '#',
    )
    fc.assert(
      fc.property(fc.string(), fc.array(piece), (text, pieces) => {
        for (const asked of [text, pieces.join(''), `/${pieces.join('')}`]) {
          const path = localPath(asked, ORIGIN)
          expect(new URL(`${ORIGIN}${path}`).origin).toBe(ORIGIN)
          expect(path).toMatch(/^\/[\x21-\x7e]*$/)
        }
      }),
    )
  })
})

describe('siteOf()', () => {
  it('is the endpoint as the visitor knows it, whatever rules tell the device', () => {
    const { request } = createExchange({ url: `${ORIGIN}/` })
    if (!request) throw new Error('no request')
    const site = { origin: ORIGIN, site: 'https://cam.test', isSecure: true }
    expect(siteOf(request)).toEqual(site)
    request.headers.set('host', 'device.local')
    expect(siteOf(request)).toEqual({ ...site, origin: 'https://cam.test' })
  })
})

describe('ownPath()', () => {
  const pathOf = (path: string, method = 'GET') =>
    ownPath(createExchange({ url: `${ORIGIN}${path}`, method }), 'staff', 'abc')

  it.each([
    ['/ngrok/login?auth_id=staff', 'login'],
    ['/ngrok/logout?auth_id=staff&redirect_path=/', 'logout'],
    ['/ngrok/callback?code=1&state=abc.x', 'callback'],
    ['/ngrok/login', undefined],
    ['/ngrok/logout?auth_id=other', undefined],
    ['/ngrok/callback?code=1&state=abd.x', undefined],
    ['/ngrok/callback', undefined],
    ['/ngrok/login/x?auth_id=staff', undefined],
    ['/login?auth_id=staff', undefined],
  ])('of %s is %s', (path, own) => {
    expect(pathOf(path)).toBe(own)
  })

  it('changes nothing for requests that do', () => {
    expect(pathOf('/ngrok/logout?auth_id=staff', 'POST')).toBeUndefined()
    expect(pathOf('/ngrok/login?auth_id=staff', 'HEAD')).toBe('login')
    expect(pathOf('/ngrok/callback?code=1&state=abc.x', 'HEAD')).toBeUndefined()
  })
})
