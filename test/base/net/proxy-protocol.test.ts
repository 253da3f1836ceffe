import { describe, expect, it } from 'vitest'
import {
  decodeProxyProtocol,
  encodeProxyProtocol,
  proxyHeaderLength,
} from '../../../src/base/net/proxy-protocol.ts'

const IPV4 = { clientIp: '203.0.113.9', clientPort: 51_234, serverIp: '192.0.2.1', serverPort: 443 }
const IPV6 = { ...IPV4, clientIp: '2001:db8::9', serverIp: '2001:db8::1' }
const SIGNATURE = '0d0a0d0a000d0a515549540a'

describe('the PROXY header', () => {
  it.each([
    [IPV4, 'PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\n'],
    [IPV6, 'PROXY TCP6 2001:db8::9 2001:db8::1 51234 443\r\n'],
    [{ ...IPV4, serverIp: '2001:db8::1' }, 'PROXY TCP6 ::ffff:cb00:7109 2001:db8::1 51234 443\r\n'],
    [{ ...IPV4, clientIp: '' }, 'PROXY UNKNOWN\r\n'],
    [{ ...IPV4, serverIp: 'gone' }, 'PROXY UNKNOWN\r\n'],
    [undefined, 'PROXY UNKNOWN\r\n'],
  ])('of version 1 is a line: %j', (ends, line) => {
    expect(encodeProxyProtocol(1, ends).toString()).toBe(line)
    // 2.1: the longest that there is has 107 bytes.
    expect(line.length).toBeLessThanOrEqual(107)
  })

  it.each([
    [IPV4, '2111000ccb007109c0000201c82201bb'],
    [
      IPV6,
      '21210024' +
        '20010db8000000000000000000000009' +
        '20010db8000000000000000000000001' +
        'c82201bb',
    ],
    [
      { ...IPV6, clientIp: '203.0.113.9' },
      '21210024' +
        '00000000000000000000ffffcb007109' +
        '20010db8000000000000000000000001' +
        'c82201bb',
    ],
    [undefined, '20000000'],
  ])('of version 2 is binary: %j', (ends, hex) => {
    expect(encodeProxyProtocol(2, ends).toString('hex')).toBe(`${SIGNATURE}${hex}`)
  })
})

describe('the length of a PROXY header', () => {
  it.each([1, 2] as const)('of version %i is known when it is all there', (version) => {
    for (const ends of [IPV4, IPV6, undefined]) {
      const header = encodeProxyProtocol(version, ends)
      for (let length = 0; length < header.length; length += 1) {
        expect(proxyHeaderLength(header.subarray(0, length))).toBeUndefined()
      }
      expect(proxyHeaderLength(Buffer.concat([header, Buffer.from('GET /')]))).toBe(header.length)
    }
  })

  it.each([
    ['another protocol', Buffer.from('GET / HTTP/1.1\r\n')],
    ['a line no expiry', Buffer.from(`PROXY ${'x'.repeat(120)}\r\n`)],
    ['more than one can be', Buffer.from(`${SIGNATURE}2011ffff`, 'hex')],
  ])('is none of %s', (_what, bytes) => {
    expect(() => proxyHeaderLength(bytes)).toThrow()
  })
})

describe('a PROXY header that was received', () => {
  it.each([1, 2] as const)('of version %i names both ends', (version) => {
    for (const ends of [IPV4, IPV6, undefined]) {
      expect(decodeProxyProtocol(encodeProxyProtocol(version, ends))).toEqual(ends)
    }
  })

  it('is read with the fields that follow the addresses', () => {
    const header = Buffer.from(`${SIGNATURE}21110013cb007109c0000201c82201bb030004a1b2c3d4`, 'hex')
    expect(decodeProxyProtocol(header)).toEqual(IPV4)
    const local = Buffer.from(`${SIGNATURE}20110000`, 'hex')
    expect(decodeProxyProtocol(local)).toBeUndefined()
    const unix = Buffer.from(`${SIGNATURE}213100d8${'00'.repeat(216)}`, 'hex')
    expect(decodeProxyProtocol(unix)).toBeUndefined()
  })

  it('has IPv4 addresses for IPv4-mapped ones', () => {
    const mixed = { ...IPV6, clientIp: '203.0.113.9' }
    expect(decodeProxyProtocol(encodeProxyProtocol(2, mixed))).toEqual(mixed)
  })

  it.each([
    ['::ffff:203.0.113.9', '203.0.113.9'],
    ['::FFFF:cb00:7109', '203.0.113.9'],
    ['2001:DB8:0:0::9', '2001:db8::9'],
  ])('has one spelling for an address: %s', (written, ip) => {
    const header = `PROXY TCP6 ${written} 2001:db8::1 51234 443\r\n`
    expect(decodeProxyProtocol(Buffer.from(header))?.clientIp).toBe(ip)
  })

  it.each([
    'PROXY TCP6 fe80::9%eth0 2001:db8::1 51234 443\r\n',
    'PROXY TCP4 203.0.113.9 192.0.2.1 51234\r\n',
    'PROXY TCP4 2001:db8::9 192.0.2.1 51234 443\r\n',
    'PROXY TCP6 203.0.113.9 192.0.2.1 51234 443\r\n',
    'PROXY TCP4 203.0.113.999 192.0.2.1 51234 443\r\n',
    'PROXY TCP4 203.0.113.9 192.0.2.1 65536 443\r\n',
    'PROXY TCP4  203.0.113.9 192.0.2.1 51234 443\r\n',
    'PROXY UDP4 203.0.113.9 192.0.2.1 51234 443\r\n',
    Buffer.from(`${SIGNATURE}2111000bcb007109c0000201c82201`, 'hex'),
    Buffer.from(`${SIGNATURE}2f11000ccb007109c0000201c82201bb`, 'hex'),
  ])('is refused when it is not valid: %j', (header) => {
    expect(() => decodeProxyProtocol(Buffer.from(header as string, 'latin1'))).toThrow(/PROXY/)
  })
})
