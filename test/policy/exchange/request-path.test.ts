import { describe, expect, it } from 'vitest'
import { isAmbiguousPath, plainTarget } from '../../../src/policy/exchange/request-path.ts'

describe('plainTarget()', () => {
  it.each([
    ['/admin', '/admin'],
    ['/%61dm%69n', '/admin'],
    ['//admin///x//', '/admin/x/'],
    ['/%7Euser/%2D%5F%2e%2E', '/~user/-_..'],
    // Servers take these as they are and encoded (RFC 3986 3.3: sub-delims, `:` and `@`).
    ['/%40me/a%3Ab/%28%29%21%2A%27%24%26%2B%2C%3B%3D', "/@me/a:b/()!*'$&+,;="],
    ['/a"<b>/%22%3Cb%3E', '/a"<b>/"<b>'],
    ['/projects/a%2fb', '/projects/a%2Fb'],
    ['/https:%2F%2Fexample', '/https:%2F%2Fexample'],
    // Beside a plain slash it is one more of the doubled ones.
    ['/%2fadmin', '/admin'],
    ['/x%2F/%2F%2fadmin', '/x/admin'],
    ['/a%20b/gr%c3%b6%C3%9fe/%E2%82%AC/%F0%9F%98%80', '/a b/größe/€/😀'],
    // What is no UTF-8 stays, and keeps nothing else from being decoded.
    ['/%61%C3%B6%FF/%C3/%C0%AF/%ED%A0%80/%F4%90%80%80', '/aö%FF/%C3/%C0%AF/%ED%A0%80/%F4%90%80%80'],
    // What begins another part of a URL, breaks a line or could be decoded once more stays.
    ['/a%3fb%23c%25%36%31%0a%0D%00%7f', '/a%3Fb%23c%2561%0A%0D%00%7F'],
    ['/%2561', '/%2561'],
    ['/%', '/%'],
    ['/%6', '/%6'],
    ['/%zz%é', '/%zz%é'],
    ['*', '*'],
    ['', ''],
  ])('reads %s as %s', (path, plain) => {
    expect(plainTarget(path).path).toBe(plain)
    expect(plainTarget(`${path}?a=/x//y`)).toMatchObject({ path: plain, query: 'a=/x//y' })
  })

  it('keeps a URL in its text: blanks and other scripts stay encoded', () => {
    const { text } = plainTarget('//%61%20b/%c3%b6?%64ebug=%31&x=a%26b%2f%2Bc+d%20')
    expect(text).toBe('/a%20b/%C3%B6?debug=1&x=a%26b%2F%2Bc+d%20')
    expect(plainTarget('/a?').text).toBe('/a?')
  })

  it('decodes what has a meaning in a query only in the path', () => {
    expect(plainTarget('/?a%3D=b%26').query).toBe('a%3D=b%26')
  })

  it('comes to the same when it is done twice', () => {
    for (const path of ['/%2561', '/a%2f%2Fb//c', '/%25%32%46/%ff', '/%2F%2e%2E/']) {
      const { text } = plainTarget(path)
      expect(plainTarget(text).text).toBe(text)
    }
  })
})

describe('isAmbiguousPath()', () => {
  it.each([
    ...['/./admin', '/x/../admin', '/..', '/x/.', '/../', '/./', '//../admin'],
    ...['/%2e/admin', '/x/%2e%2E/admin', '/x/.%2e/admin', '/x/%2e./admin', '/x/%2E'],
    ...['/x%2f..%2fadmin', '/x%2F../admin', '/x/..%2Fadmin', '/%2F./'],
    ...['/x%5c..%5cadmin', '/x\\..\\admin', '/x\\admin', '/x%5Cadmin', '/\\'],
    ...['/admin%00.jpg', '/%00'],
    // Parameters of a segment, as Java servers have them.
    ...['/x/..;/admin', '/x/..;a=b/admin', '/x/..%3b/admin', '/.;x'],
    ...['/;/admin', '/x/;a=b/admin', '/x%2F%3b/admin'],
    // Encoded twice or in overlong UTF-8, for services that decode too much.
    ...['/x/%252e%252e/admin', '/x%252f..%252fadmin', '/x/.%25252e/admin'],
    ...[
      '/x/%25%32%65%25%32e/admin',
      '/x%25%32%66../admin',
      '/x/%2%65%2%65/admin',
      '/%5%63',
      '/%0%30',
    ],
    ...['/x/%c0%ae%C0%AE/admin', '/x%c0%afadmin', '/x/%e0%80%ae', '/x%C1%9cadmin', '/a%c0%80b'],
  ])('is true for %s', (path) => {
    expect(isAmbiguousPath(path)).toBe(true)
    expect(isAmbiguousPath(`${path}?a=b`)).toBe(true)
  })

  it.each([
    ...['/', '*', '/admin', '//admin', '/.well-known/acme', '/..x', '/x..', '/...', '/a.b/.c/d..e'],
    ...['/projects/a%2Fb', '/job/feature%252Fx', '/a%2ehtml', '/a%5', '/%', '/a%255Cb', '/caf%E9'],
    ...['/%C3%A4/%C0x', '/a;x=../b', '/a;/b', '/%2E%2E%2E', '/x/%2e%2ey'],
    ...['/a?b=/../c', '/a?b=c\\d', '/a?%00'],
  ])('is false for %s', (path) => {
    expect(isAmbiguousPath(path)).toBe(false)
  })
})
