import { describe, expect, it } from 'vitest'
import { Scrubber } from '../../../src/cli/bundle/scrubber.ts'

const SECRET = 'can/ary+"secret" of $the^test 42'
const base64 = (text: string) => Buffer.from(text).toString('base64')

describe('Scrubber', () => {
  const scrubber = new Scrubber([SECRET, 'abc'])

  it.each([
    ['as it is', SECRET],
    ['in JSON', JSON.stringify({ note: SECRET })],
    ['in JSON within JSON', JSON.stringify({ note: JSON.stringify({ inner: SECRET }) })],
    ['in a URL', `/x?note=${encodeURIComponent(SECRET)}&b=1`],
    [
      'in a URL, in small letters',
      encodeURIComponent(SECRET).replaceAll('%2F', '%2f').toLowerCase(),
    ],
    ['in a form', new URLSearchParams({ note: SECRET }).toString()],
    ['in base64', base64(SECRET)],
    ['in base64 behind a name', base64(`u:${SECRET}`)],
    ['in base64 behind a longer one', base64(`us:${SECRET} and more`)],
    ['in base64 of URLs', Buffer.from(`user:${SECRET}`).toString('base64url')],
    ['in hex', Buffer.from(SECRET).toString('hex')],
  ])('takes a known secret out %s', (_form, text) => {
    const left = scrubber.scrub(`before ${text} after`)
    expect(left).toContain('[secret]')
    expect(left).toMatch(/^before .* after$/)
    expect(left).not.toMatch(/canary|secret" of/)
    expect(left).not.toContain(base64(SECRET).slice(4, -4))
    expect(left.length).toBeLessThan(text.length + 14)
  })

  it.each([
    ['authorization: Bearer abcdef0123456789', 'authorization: Bearer [secret]'],
    ['Basic dXNlcjpwYXNzd29yZA==', 'Basic [secret]'],
    ['token dagt_abcdefgh01234 used', 'token [secret] used'],
    ['https://user:pass@host/path', 'https://[secret]@host/path'],
    ['https://user:p@ss@host/path', 'https://[secret]@host/path'],
    ['eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl', '[secret]'],
    ['-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----!', '[secret]!'],
  ])('takes out what looks like one: %s', (text, left) => {
    expect(scrubber.scrub(text)).toBe(left)
  })

  it.each([
    ['GET /a?token=abcd&size=3', 'GET /a?token=[secret]&size=3'],
    ['{"password":"ab \\" cd","url":"x"}', '{"password":"[secret]","url":"x"}'],
    ['cookie: theme=dark; sid=abcd', 'cookie: [secret]'],
    ['{"msg":"cookie: a=b; sid=abcd","size":3}', '{"msg":"cookie: [secret]","size":3}'],
    ['{"set-cookie":["a=b","sid=abcd"],"size":3}', '{"set-cookie":"[secret]","size":3}'],
    ['authorization: Bearer abcdef0123456789 sent', 'authorization: Bearer [secret] sent'],
    ['token=Basic abc', 'token=[secret]'],
    [
      '{"msg":"token [secret] and password=abcd"}',
      '{"msg":"token [secret] and password=[secret]"}',
    ],
    ['password=abcd[secret]', 'password=[secret]'],
    ['x-api-key=abcd', 'x-api-key=[secret]'],
    ['{"path":"/a?access_token=abcd&x=1"}', '{"path":"/a?access_token=[secret]&x=1"}'],
    ['path=/a?token=abcd', 'path=/a?token=[secret]'],
    ['{"body":"{\\"password\\":\\"abcd\\"}"}', '{"body":"{\\"password\\":\\"[secret]\\"}"}'],
    [
      'state=online url=https://a.test reason=network',
      'state=online url=https://a.test reason=network',
    ],
  ])('takes out of a log what is called one: %s', (text, left) => {
    expect(scrubber.scrubWords(text)).toBe(left)
  })

  it('leaves alone what is too short to be one', () => {
    expect(scrubber.scrub('abcdef')).toBe('abcdef')
    expect(new Scrubber([]).scrub('abcdef')).toBe('abcdef')
  })
})
