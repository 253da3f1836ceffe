import { describe, expect, it } from 'vitest'
import {
  type AllowEntry,
  mayDial,
  mayRead,
  parseAllowEntry,
} from '../../../src/policy/outbound/outbound-allow.ts'

function entriesOf(list: string): AllowEntry[] {
  return list.split(' ').map((text) => {
    const entry = parseAllowEntry(text)
    if ('problem' in entry) throw new Error(`${text}: ${entry.problem}`)
    return entry
  })
}

/** `host port`, `host>address port`. */
function reaches(list: string, target: string): boolean {
  const [where = '', port = '80'] = target.split(' ')
  const [host = '', address = host] = where.split('>')
  return mayDial(list === '' ? [] : entriesOf(list), { host, address, port: Number(port) })
}

describe('mayDial()', () => {
  it.each([
    ['10.0.0.0/8', '10.1.2.3'],
    ['10.1.2.3', '10.1.2.3 9'],
    ['10.1.2.3:443', '10.1.2.3 443'],
    ['10.0.0.0/8:443', '10.1.2.3 443'],
    ['192.168.0.0/16', '::ffff:192.168.0.1'],
    ['10.0.0.0/8', '64:ff9b::a00:1'],
    ['10.0.0.0/8', '2002:a00:1::1'],
    ['fd00::/8', 'fd12::1'],
    ['[fd00::/8]:443', 'fd12::1 443'],
    ['[fd12::1]', 'fd12::1'],
    ['fd12::1', 'fd12::1'],
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['localhost', 'localhost>127.0.0.1'],
    ['localhost:8080', 'localhost>::1 8080'],
    ['Keys.Example.com', 'keys.example.com>203.0.113.9'],
    ['keycloak', 'keycloak>10.0.0.9'],
    ['0.0.0.0/0', '8.8.8.8'],
    ['::/0', '2606:4700::1'],
    ['100.64.0.0/10', '100.64.3.2'],
    ['64:ff9b:1::/48', '64:ff9b:1::a00:1'],
    ['keycloak', 'keycloak>64:ff9b:1::a00:1'],
    ['9.9.9.9 10.0.0.1:80', '10.0.0.1 80'],
  ])('with %s reaches %s', (list, target) => {
    expect(reaches(list, target)).toBe(true)
  })

  it.each([
    ['', '8.8.8.8'],
    ['', 'keys.example.com>8.8.8.8'],
    ['10.1.2.3:443', '10.1.2.3 80'],
    ['10.0.0.0/8:443', '10.1.2.3 4430'],
    ['10.0.0.0/8', '11.0.0.1'],
    ['10.0.0.0/8', 'keys.example.com>11.0.0.1'],
    ['keys.example.com', 'other.example.com>203.0.113.9'],
    ['keys.example.com:443', 'keys.example.com>203.0.113.9 80'],
    ['keys.example.com', '203.0.113.9'],
    // A name that somebody else looks after must not lead into this machine.
    ['keys.example.com', 'keys.example.com>127.0.0.1'],
    ['keys.example.com', 'keys.example.com>::1'],
    ['keys.example.com', 'keys.example.com>::ffff:127.0.0.1'],
    ['localhost', 'localhost>10.0.0.1'],
    // What is wide stands for public addresses.
    ['0.0.0.0/0', '10.0.0.1'],
    ['0.0.0.0/0', '127.0.0.1'],
    ['0.0.0.0/0', '100.64.0.1'],
    ['0.0.0.0/0', '::ffff:10.0.0.1'],
    ['8.0.0.0/5', '10.0.0.1'],
    ['::/0', '::1'],
    ['::/0', 'fd00::1'],
    ['::/0', '64:ff9b::808:808'],
    ['::/0', '::ffff:0:a00:1'],
    ['::/0', '2001:0:1::1'],
    ['::/0', '64:ff9b:1::808:808'],
    ['0.0.0.0/0', '64:ff9b:1::a00:1'],
  ])('with %s does not reach %s', (list, target) => {
    expect(reaches(list, target)).toBe(false)
  })

  it.each([
    '0.0.0.0',
    '0.1.2.3',
    '::',
    '169.254.169.254',
    '169.254.0.1',
    '::ffff:169.254.169.254',
    '64:ff9b::a9fe:a9fe',
    '2002:a9fe:a9fe::1',
    // NAT64 prefixes of 96, 64, 56 and 48 bits, Teredo, ISATAP, IPv4-compatible, SIIT.
    '64:ff9b:1::a9fe:a9fe',
    '64:ff9b:1:0:a9:fea9:fe00:0',
    '64:ff9b:1:a9:fe:a9fe::',
    '64:ff9b:1:a9fe:a9:fe00::',
    '2001:0:808:808:0:0:5601:5601',
    'fd00::5efe:a9fe:a9fe',
    '2606:4700::200:5efe:a9fe:a9fe',
    '::a9fe:a9fe',
    '::ffff:0:a9fe:a9fe',
    'fe80::1',
    'fe80::1%lo',
    'fd00:ec2::254',
    '100.100.100.200',
    '224.0.0.1',
    'ff02::1',
    '255.255.255.255',
  ])('never reaches %s', (address) => {
    const all =
      '0.0.0.0/0 ::/0 10.0.0.0/8 fd00::/8 64:ff9b:1::/48 100.64.0.0/10 127.0.0.0/8 name.example'
    expect(reaches(all, address)).toBe(false)
    expect(reaches(all, `name.example>${address}`)).toBe(false)
  })
})

describe('mayRead()', () => {
  it.each([
    ['file:///etc/keys/jwks.json', '/etc/keys/jwks.json', true],
    ['file:///etc/keys/jwks.json', '/etc/keys/jwks.json2', false],
    ['file:///etc/keys/', '/etc/keys/a/jwks.json', true],
    ['file:///etc/keys/', '/etc/keys', false],
    ['file:///etc/keys', '/etc/keys/jwks.json', false],
    ['file:///etc/keys/../other/', '/etc/other/a', true],
    ['example.com', '/etc/keys', false],
    ['', '/etc/keys', false],
  ])('with %s, %s: %s', (list, path, isAllowed) => {
    expect(mayRead(list === '' ? [] : entriesOf(list), path)).toBe(isAllowed)
  })

  it('says nothing of what may be dialled', () => {
    expect(reaches('file:///', 'example.com>192.0.2.1 80')).toBe(false)
  })
})

describe('parseAllowEntry()', () => {
  it.each(['file://host/a', 'file:///a%2Fb'])('refuses %s', (text) => {
    expect(parseAllowEntry(text)).toEqual({
      problem: 'must be file:///path for a file, or file:///path/ for a directory',
    })
  })

  it.each([
    ['10.0.0.1/8', 'a CIDR must start with its lowest address: 10.0.0.0/8'],
    ['fd12::1/8', 'a CIDR must start with its lowest address: fd00::/8'],
    ['10.0.0.1:0', 'a port must be a number from 1 to 65535'],
    ['10.0.0.1:65536', 'a port must be a number from 1 to 65535'],
    ['169.254.169.254', 'connections to 169.254.0.0/16 are always blocked'],
    ['169.254.0.0/16', 'connections to 169.254.0.0/16 are always blocked'],
    ['fe80::/10', 'connections to fe80::/10 are always blocked'],
    ['0.0.0.0', 'connections to 0.0.0.0/8 are always blocked'],
    ['::ffff:10.0.0.1', 'write IPv4 addresses in IPv4 notation'],
    ['64:ff9b::/96', 'write IPv4 addresses in IPv4 notation'],
    ['cam.internal', 'names below .internal are allowed without an entry'],
  ])('says of %s: %s', (text, problem) => {
    expect(parseAllowEntry(text)).toEqual({ problem })
  })

  it.each([
    '10.0.0.0/33',
    '10.0.0',
    '127.1',
    '0x7f.0.0.1',
    'http://10.0.0.1',
    'keys.example.com/path',
    '*.example.com',
    'bücher.example',
    ':443',
    '[::1',
    '[keys.example.com]:443',
    'fd00::1%eth0',
    'user@host',
  ])('does not take %s', (text) => {
    expect(parseAllowEntry(text)).toEqual({
      problem: 'not a host, address or CIDR with optional :port',
    })
  })
})
