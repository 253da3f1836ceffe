import { networkInterfaces } from 'node:os'
import { describe, expect, it } from 'vitest'
import { isLocalPeer, pageUrls } from '../../../src/api/page/page-address.ts'

const HERE = { host: '127.0.0.1', port: 7040 }
const machine = () => ['192.168.1.20', 'fd00::20']

describe('pageUrls', () => {
  it.each([
    ['this machine alone', HERE, undefined, ['http://127.0.0.1:7040/page/']],
    [
      'an address of the network first',
      HERE,
      { host: '192.168.1.20', port: 7041 },
      ['http://192.168.1.20:7041/page/', 'http://127.0.0.1:7040/page/'],
    ],
    [
      'each IPv4 address where it listens on all',
      HERE,
      { host: '0.0.0.0', port: 7041 },
      ['http://192.168.1.20:7041/page/', 'http://127.0.0.1:7040/page/'],
    ],
    [
      'loopback of one that listens on all',
      { host: '0.0.0.0', port: 7040 },
      undefined,
      ['http://127.0.0.1:7040/page/'],
    ],
    ['nothing where nobody gets it', { host: '192.168.1.20', port: 7040 }, undefined, []],
  ])('names %s', (_what, listen, pageListen, urls) => {
    expect(pageUrls(listen, pageListen, machine)).toEqual(urls)
  })

  it('names IPv6 where there is nothing else', () => {
    expect(pageUrls(HERE, { host: '::', port: 7041 }, () => ['fd00::20'])[0]).toBe(
      'http://[fd00::20]:7041/page/',
    )
  })

  it('names what the machine itself has, and none that means it alone', () => {
    const own = Object.values(networkInterfaces()).flatMap((found) => found ?? [])
    const urls = pageUrls(HERE, { host: '0.0.0.0', port: 7041 })
    const shown = urls.filter((url) => url !== 'http://127.0.0.1:7040/page/')
    for (const url of shown) {
      const host = new URL(url).hostname.replace(/[[\]]/g, '')
      expect(own.find(({ address }) => address === host)).toMatchObject({ internal: false })
    }
    const hasNetwork = own.some(
      ({ internal, address }) => !internal && !address.startsWith('fe80:'),
    )
    expect(shown.length > 0).toBe(hasNetwork)
  })
})

describe('isLocalPeer', () => {
  it.each([
    ['127.0.0.1', true],
    ['::1', true],
    ['::ffff:127.0.0.1', true],
    ['192.168.1.9', false],
    ['::ffff:192.168.1.9', false],
    [undefined, false],
  ])('%s: %s', (address, isLocal) => {
    expect(isLocalPeer(address)).toBe(isLocal)
  })
})
