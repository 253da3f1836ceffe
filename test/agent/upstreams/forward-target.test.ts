import { describe, expect, it } from 'vitest'
import {
  formatForwardTarget,
  parseForwardTarget,
} from '../../../src/agent/upstreams/forward-target.ts'

describe('parseForwardTarget', () => {
  it.each([
    ['localhost:8001', 'localhost:8001'],
    [':8001', 'localhost:8001'],
    ['8001', 'localhost:8001'],
    ['LocalHost:8001', 'localhost:8001'],
    ['127.0.0.1:80', '127.0.0.1:80'],
    ['[::1]:8001', '[::1]:8001'],
    ['[FD00::2]:8001', '[fd00::2]:8001'],
    ['printer-2.lan:9100', 'printer-2.lan:9100'],
    ['my_host:1', 'my_host:1'],
    ['localhost:65535', 'localhost:65535'],
    ['https://NAS.lan:8443', 'https://nas.lan:8443'],
    ['HTTPS://nas.lan', 'https://nas.lan:443'],
    ['https://localhost:8443/', 'https://localhost:8443'],
    ['https://[::1]:8443', 'https://[::1]:8443'],
    ['https://[::1]', 'https://[::1]:443'],
    ['unix:/run/App.sock', 'unix:/run/App.sock'],
    ['unix:///run/app.sock', 'unix:/run/app.sock'],
  ])('reads %s as %s', (text, normal) => {
    const target = parseForwardTarget(text)
    expect(target && formatForwardTarget(target)).toBe(normal)
  })

  it.each([
    '',
    'localhost',
    'localhost:',
    'localhost:0',
    'localhost:65536',
    'localhost:080808',
    'localhost:80a',
    '::1:8001',
    '[::1]',
    '[::g]:80',
    '[fe80::1%eth0]:80',
    '[127.0.0.1]:80',
    'http://localhost:80',
    'user@localhost:80',
    'localhost:80/path',
    'local host:80',
    '-a.lan:80',
    'a..lan:80',
    'a.lan.:80',
    // Forms that resolvers take for addresses.
    '127.1:80',
    '2130706433:80',
    '0x7f.0.0.1:80',
    '1.2.3.0x4:80',
    '256.0.0.1:80',
    'localhost:80\n',
    'https://',
    'https://:443',
    'https://443',
    'https://nas.lan:443/path',
    'https://user@nas.lan:443',
    'https://nas.lan:0',
    'unix:',
    'unix:app.sock',
    'unix:/run/../etc/app.sock',
    'unix:/run//app.sock',
    'unix:/run/',
    'unix:/run/a\nb',
    `unix:/${'x'.repeat(107)}`,
  ])('refuses %j', (text) => {
    expect(parseForwardTarget(text)).toBeUndefined()
  })
})
