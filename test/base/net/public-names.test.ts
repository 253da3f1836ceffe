import { describe, expect, it } from 'vitest'
import {
  agentAddresses,
  machineAddresses,
  parsePublicNames,
  visitorHost,
} from '../../../src/base/net/public-names.ts'

describe('public names', () => {
  it.each([
    ['gw', { host: 'gw', port: undefined }],
    ['GW.Example.com', { host: 'gw.example.com', port: undefined }],
    ['gw.example.com:14443', { host: 'gw.example.com', port: 14_443 }],
    ['xn--mnchen-3ya.example', { host: 'xn--mnchen-3ya.example', port: undefined }],
    ['203.0.113.7', { host: '203.0.113.7', port: undefined }],
    ['203.0.113.7:65535', { host: '203.0.113.7', port: 65_535 }],
    ['[2001:DB8:0:0::7]', { host: '2001:db8::7', port: undefined }],
    ['[2001:db8::7]:443', { host: '2001:db8::7', port: 443 }],
  ])('may be %s', (text, name) => {
    expect(parsePublicNames([text])).toEqual([name])
  })

  it.each([
    ['https://gw.example.com:8443/x', 'it is a URL; write gw.example.com:8443 without the scheme'],
    ['tcp://', 'it is a URL; write the host name without the scheme'],
    ['gw.example.com/', 'it has a path or a prefix length; write only the host'],
    ['10.0.0.0/8', 'it has a path or a prefix length; write only the host'],
    ['*.example.com', 'it is a wildcard; write the name that devices connect to'],
    ['2001:db8::7', 'write the IPv6 address in brackets: [2001:db8::7]'],
    ['[gw.example.com]', 'the text in brackets is not an IPv6 address'],
    ['[]', 'the text in brackets is not an IPv6 address'],
    ['[fe80::1%eth0]:4443', 'the text in brackets is not an IPv6 address'],
    ['gw.example.com:', 'the port must be a whole number from 1 to 65535'],
    ['gw.example.com:0', 'the port must be a whole number from 1 to 65535'],
    ['gw.example.com:65536', 'the port must be a whole number from 1 to 65535'],
    ['gw.example.com:1e3', 'the port must be a whole number from 1 to 65535'],
    ['gw.example.com:4443:1', 'the port must be a whole number from 1 to 65535'],
    [':4443', 'it is not a host or host:port'],
    ['[2001:db8::7]4443', 'it is not a host or host:port'],
    ['256.1.1.1', 'it is neither an IPv4 address nor a DNS name'],
    ['10.0.1', 'it is neither an IPv4 address nor a DNS name'],
    ['gw.example.com.', 'write the name without the dot at its end'],
    ['gw..example.com', 'it is not a DNS name'],
    ['gw_1.example.com', 'it is not a DNS name'],
    ['-gw.example.com', 'it is not a DNS name'],
    [`${'a.'.repeat(127)}com`, 'it is not a DNS name'],
    ['user@gw.example.com', 'it is not a DNS name'],
    ['m\u00fcnchen.example', 'write it in ASCII: xn--mnchen-3ya.example'],
    ['0.0.0.0', 'no device can connect to this address'],
    ['[::]:4443', 'no device can connect to this address'],
  ])('may not be %s', (text, problem) => {
    expect(parsePublicNames([text])).toEqual({ problem: `cannot list ${text}: ${problem}` })
  })

  it('are listed once, and are not too many', () => {
    expect(parsePublicNames(['gw.lan', 'GW.lan'])).toEqual({ problem: 'lists GW.lan twice' })
    expect(parsePublicNames(['[::1]:1', '[0::1]:1'])).toEqual({ problem: 'lists [0::1]:1 twice' })
    expect(parsePublicNames(['gw.lan:1', 'gw.lan:2'])).toHaveLength(2)
    const many = Array.from({ length: 21 }, (_, at) => `gw${at}.lan`)
    expect(parsePublicNames(many.slice(1))).toHaveLength(20)
    expect(parsePublicNames(many)).toEqual({ problem: 'can list at most 20 names' })
  })

  it('are the addresses for agents, without IPv6, which the SDK does not dial', () => {
    const listen = { host: '0.0.0.0', port: 4443 }
    const v6 = { host: '2001:db8::7', port: undefined }
    const names = [v6, { host: 'gw.lan', port: undefined }, { host: '203.0.113.7', port: 1 }]
    expect(agentAddresses(listen, names)).toEqual(['gw.lan:4443', '203.0.113.7:1'])
    expect(agentAddresses({ host: '10.0.0.1', port: 4443 }, [v6])).toEqual(['10.0.0.1:4443'])
    expect(agentAddresses({ host: '::1', port: 4443 }, [])).toEqual([])
    expect(agentAddresses({ host: '10.0.0.1', port: 0 }, [])).toEqual([])
    const known = machineAddresses().filter((address) => !address.includes(':'))
    const hosts = known.length > 0 ? known : ['127.0.0.1']
    expect(agentAddresses(listen, [v6])).toEqual(hosts.map((host) => `${host}:4443`))
  })

  it('lead visitors to the first name and address that are not this machine', () => {
    const names = ['127.0.0.1', 'localhost', 'gw.localhost', '203.0.113.7', 'gw.lan', 'b.lan']
    const listed = names.map((host) => ({ host, port: undefined }))
    expect(visitorHost(listed)).toEqual({ name: 'gw.lan', address: '203.0.113.7' })
    expect(visitorHost([])).toEqual({ name: undefined, address: undefined })
  })
})
