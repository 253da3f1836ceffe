import { describe, expect, it } from 'vitest'
import { parseCidr } from '../../../src/base/net/network.ts'
import { type ForwardingHeader, TrustedProxies } from '../../../src/base/net/trusted-proxies.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

function proxiesFor(header: ForwardingHeader) {
  const captured = captureLog()
  const clock = new ManualClock()
  const networks = ['10.0.0.0/8', '2001:db8:1::/48'].flatMap((text) => parseCidr(text) ?? [])
  const proxies = new TrustedProxies({ networks, header, log: captured.log, clock })
  const clientOf = (fields: Record<string, string[]>) =>
    proxies.clientOf('10.0.0.1', (name) => fields[name] ?? [])
  return { proxies, clientOf, clock, lines: captured.lines }
}

describe('the trusted proxies', () => {
  it.each([
    ['10.255.0.1', true],
    ['::ffff:10.0.0.1', true],
    ['2001:db8:1::9', true],
    ['11.0.0.1', false],
    ['2001:db8:2::1', false],
    ['', false],
    ['10.0.0.1.example', false],
  ])('are those of the networks: %s %s', (ip, isTrusted) => {
    expect(proxiesFor('x-forwarded-for').proxies.trusts(ip)).toBe(isTrusted)
  })

  it.each([
    [['203.0.113.9'], { ip: '203.0.113.9', port: 0, before: [] }],
    [['203.0.113.9:51234'], { ip: '203.0.113.9', port: 51_234, before: [] }],
    [['[2001:db8::9]:443'], { ip: '2001:db8::9', port: 443, before: [] }],
    [['::ffff:203.0.113.9'], { ip: '203.0.113.9', port: 0, before: [] }],
    // A client wrote the first entry by itself.
    [['127.0.0.1, 203.0.113.9'], { ip: '203.0.113.9', port: 0, before: ['127.0.0.1'] }],
    [['1.1.1.1', '203.0.113.9, 10.0.0.7'], { ip: '203.0.113.9', port: 0, before: ['1.1.1.1'] }],
    [
      ['evil, 203.0.113.9,10.0.0.7 , 2001:db8:1::2'],
      { ip: '203.0.113.9', port: 0, before: ['evil'] },
    ],
    // All are proxies: the first of them is the client.
    [['10.0.0.9, 10.0.0.7'], { ip: '10.0.0.9', port: 0, before: [] }],
    [[',, 203.0.113.9,'], { ip: '203.0.113.9', port: 0, before: [] }],
  ])('name the client in X-Forwarded-For: %j', (values, client) => {
    expect(proxiesFor('x-forwarded-for').clientOf({ 'x-forwarded-for': values })).toEqual({
      ...client,
      scheme: undefined,
    })
  })

  it.each([
    [['for=203.0.113.9;proto=https'], { ip: '203.0.113.9', scheme: 'https', before: [] }],
    [['For="[2001:db8::9]:443" ; Proto=http'], { ip: '2001:db8::9', scheme: 'http', before: [] }],
    [
      ['for=1.1.1.1;proto=https, for=203.0.113.9, for=10.0.0.7;proto=http'],
      { ip: '203.0.113.9', scheme: undefined, before: ['1.1.1.1'] },
    ],
    [
      ['for="203.0.113.9";by="a, b; for=10.0.0.1"'],
      { ip: '203.0.113.9', scheme: undefined, before: [] },
    ],
    [['for="203.0.113.9";by="a, b\\"c"'], { ip: '203.0.113.9', scheme: undefined, before: [] }],
    [
      ['for=_hidden, for=203.0.113.9'],
      { ip: '203.0.113.9', scheme: undefined, before: ['unknown'] },
    ],
  ])('name the client in Forwarded: %j', (values, client) => {
    const fields = { forwarded: values, 'x-forwarded-for': ['9.9.9.9'] }
    expect(proxiesFor('forwarded').clientOf(fields)).toMatchObject(client)
  })

  it.each([
    ['https', 'https'],
    ['HTTP', 'http'],
    ['wss', 'https'],
    ['https, http', 'http'],
    ['ftp', undefined],
  ])('tell the scheme %s of the client', (proto, scheme) => {
    const fields = { 'x-forwarded-for': ['203.0.113.9'], 'x-forwarded-proto': [proto] }
    expect(proxiesFor('x-forwarded-for').clientOf(fields)?.scheme).toBe(scheme)
  })

  it.each([
    'for="6.6.6.6',
    'for=6.6.6.6;x="',
    'for=6.6.6.6;x="\\',
    'for="6.6.6.6\\"',
    '"',
    '=;,",;',
  ])('are read whatever a client wrote before them: %j', (forged) => {
    for (const [own, ip] of [
      ['for=203.0.113.9', '203.0.113.9'],
      ['for="[2001:db8::9]:443"', '2001:db8::9'],
    ] as const) {
      for (const chain of [own, `${own}, for=10.0.0.7;proto=https`]) {
        const { clientOf, lines } = proxiesFor('forwarded')
        expect(clientOf({ forwarded: [`${forged}, ${chain}`] })?.ip).toBe(ip)
        expect(lines).toEqual([])
      }
    }
  })

  it.each([
    ['x-forwarded-for', '2001:db8::1'],
    ['forwarded', 'for="[2001:db8::1]"'],
  ] as const)('look at the last entries of %s alone', (header, entry) => {
    const { clientOf } = proxiesFor(header)
    const own = header === 'forwarded' ? 'for=203.0.113.9' : '203.0.113.9'
    const values = [`${entry},`.repeat(3_000), own]
    expect(clientOf({ [header]: values })).toMatchObject({ ip: '203.0.113.9' })
    expect(clientOf({ [header]: values })?.before).toHaveLength(31)
  })

  it.each<[ForwardingHeader, Record<string, string[]>, RegExp]>([
    ['x-forwarded-for', {}, /did not name the client/],
    ['x-forwarded-for', { 'x-forwarded-for': [' ,'] }, /did not name the client/],
    ['x-forwarded-for', { 'x-forwarded-for': ['203.0.113.9, unknown'] }, /without a valid address/],
    [
      'x-forwarded-for',
      { 'x-forwarded-for': ['203.0.113.9, 10.0.0.256'] },
      /without a valid address/,
    ],
    [
      'x-forwarded-for',
      { 'x-forwarded-for': ['203.0.113.9, 010.0.0.1'] },
      /without a valid address/,
    ],
    ['x-forwarded-for', { forwarded: ['for=203.0.113.9'] }, /did not name the client/],
    ['forwarded', { 'x-forwarded-for': ['203.0.113.9'] }, /did not name the client/],
    ['forwarded', { forwarded: ['for=unknown'] }, /without a valid address/],
    ['forwarded', { forwarded: ['for=203.0.113.9;oops'] }, /without a valid address/],
    ['forwarded', { forwarded: ['for="203.0.113.9'] }, /without a valid address/],
    ['forwarded', { forwarded: ['proto=https'] }, /without a valid address/],
  ])('say in one line of the log what is wrong with %s %j', async (header, fields, line) => {
    const { clientOf, clock, lines } = proxiesFor(header)
    expect([clientOf(fields), clientOf(fields)]).toEqual([undefined, undefined])
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'warn',
        proxy: '10.0.0.1',
        msg: expect.stringMatching(line),
      }),
    ])
    await clock.advance(60_000)
    clientOf(fields)
    expect(lines).toHaveLength(2)
  })
})
