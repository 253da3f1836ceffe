import { describe, expect, it } from 'vitest'
import {
  formatListenAddress,
  isLoopback,
  parseListenAddress,
  parsePortRange,
} from '../../src/base/listen-address.ts'

describe('listen addresses', () => {
  it.each([
    ['127.0.0.1:8080', '127.0.0.1', 8080],
    ['localhost:0', 'localhost', 0],
    ['[::1]:443', '::1', 443],
  ])('%s is read and written alike', (text, host, port) => {
    expect(parseListenAddress(text)).toEqual({ host, port })
    expect(formatListenAddress({ host, port })).toBe(text)
  })

  it.each(['', '8080', ':8080', 'host', 'host:', 'host:70000', 'a:b:1', '::1:80', 'x y:1'])(
    'refuses %j',
    (text) => {
      expect(parseListenAddress(text)).toBeUndefined()
    },
  )

  it('knows which hosts only this machine can reach', () => {
    expect(['127.0.0.1', '::1', 'localhost', '127.9.9.9'].every(isLoopback)).toBe(true)
    expect(['0.0.0.0', '10.0.0.1', '::', 'example.com'].some(isLoopback)).toBe(false)
  })
})

describe('port ranges', () => {
  it.each([
    ['0.0.0.0:20000-20100', { host: '0.0.0.0', first: 20_000, last: 20_100 }],
    ['gw.example.com:22', { host: 'gw.example.com', first: 22, last: 22 }],
    ['[::1]:1-2', { host: '::1', first: 1, last: 2 }],
    ['0.0.0.0:20100-20000', undefined],
    ['0.0.0.0:0-5', undefined],
    ['0.0.0.0:60000-70000', undefined],
    ['0.0.0.0:1-10001', undefined],
    ['0.0.0.0', undefined],
    ['20000-20100', undefined],
  ])('%j is %j', (text, range) => {
    expect(parsePortRange(text)).toEqual(range)
  })
})
