import { describe, expect, it } from 'vitest'
import { parseAddress, parseCidr } from '../../src/base/cidr.ts'

const has = (range: string, address: string) => {
  const read = parseAddress(address)
  return read !== undefined && parseCidr(range)?.contains(read)
}

describe('parseCidr()', () => {
  it.each([
    ['192.0.2.0/24', '192.0.2.9', true],
    ['192.0.2.0/24', '192.0.3.9', false],
    ['2001:db8::/32', '2001:db8:1::1', true],
    // Addresses are read as the IPv4 addresses that they stand for: so are ranges.
    ['::ffff:192.0.2.0/120', '192.0.2.9', true],
    ['::ffff:192.0.2.0/120', '::ffff:c000:209', true],
    ['::ffff:192.0.2.0/120', '192.0.3.9', false],
    ['::ffff:192.0.2.9', '192.0.2.9', true],
    ['::ffff:0:0/96', '203.0.113.1', true],
    ['::ffff:0:0/96', '2001:db8::1', false],
    ['::/0', '2001:db8::1', true],
    ['::/0', '192.0.2.9', false],
  ])('%s has %s: %s', (range, address, expected) => {
    expect(has(range, address)).toBe(expected)
  })
})
