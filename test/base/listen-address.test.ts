import { describe, expect, it } from 'vitest'
import {
  formatListenAddress,
  isLoopback,
  parseListenAddress,
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
