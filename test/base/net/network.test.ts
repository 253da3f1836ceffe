import { describe, expect, it } from 'vitest'
import {
  countedAddress,
  networkOf,
  parseAddress,
  parseCidr,
} from '../../../src/base/net/network.ts'

describe('networkOf()', () => {
  it.each([
    ['203.0.113.9', '203.0.113.9'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::6', '2001:db8:1:2::/64'],
    ['2001:DB8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['1::4:5:6:7:8', '1:0:0:4::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['64:ff9b::192.0.2.1', '192.0.2.1'],
    ['64:ff9b:1::c000:201', '64:ff9b:1:0::/64'],
    ['a:b', 'a:b'],
    ['', ''],
  ])('of %s is %s', (address, network) => {
    expect(networkOf(address)).toBe(network)
  })
})

describe('countedAddress()', () => {
  it.each([
    ['203.0.113.9', 64, '203.0.113.9'],
    ['2001:db8:1:2ff:3:4:5:6', 64, '2001:db8:1:2ff::'],
    ['2001:db8:1:2ff:3:4:5:6', 56, '2001:db8:1:200::'],
    ['2001:db8:1:2ff:3:4:5:6', 60, '2001:db8:1:2f0::'],
    ['2001:db8:1:2ff:3:4:5:6', 32, '2001:db8::'],
    ['2001:db8:1:2ff:3:4:5:6', 127, '2001:db8:1:2ff:3:4:5:6'],
    ['2001:db8:1:2ff:3:4:5:7', 127, '2001:db8:1:2ff:3:4:5:6'],
    ['2001:db8:1:2ff:3:4:5:7', 128, '2001:db8:1:2ff:3:4:5:7'],
    ['::ffff:192.0.2.1', 64, '192.0.2.1'],
    ['64:ff9b::c000:201', 64, '192.0.2.1'],
    ['64:ff9b::c000:201', 128, '192.0.2.1'],
    ['no address', 64, 'no address'],
  ])('of %s with %d bits is %s', (address, prefix, counted) => {
    expect(countedAddress(address, prefix)).toBe(counted)
  })
})

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
