import { describe, expect, it } from 'vitest'
import { clientNetwork } from '../../src/base/client-network.ts'

describe('clientNetwork()', () => {
  it.each([
    ['203.0.113.9', '203.0.113.9'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:db8:1:2::6', '2001:db8:1:2'],
    ['2001:db8::1', '2001:db8:0:0'],
    ['2001:db8::', '2001:db8:0:0'],
    ['::1', '0:0:0:0'],
    ['::', '0:0:0:0'],
    ['::3:4:5:6:7:8', '0:0:3:4'],
    ['1::4:5:6:7:8', '1:0:0:4'],
    ['1:2:3::5:6:7:8', '1:2:3:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['', ''],
  ])('of %s is %s', (address, network) => {
    expect(clientNetwork(address)).toBe(network)
  })
})
