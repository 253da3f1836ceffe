import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  PUBLIC_AUTHORITY,
  planSettings,
  type SetupAnswers,
} from '../../../src/cli/setup/setup-plan.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const ANSWERS: SetupAnswers = {
  domain: '*.tunnels.example.com',
  name: 'gw.example.com',
  addresses: [],
}

/** The plan for a settings file with this text; undefined: there is none. */
function planned(
  text: string | undefined,
  answers: Partial<SetupAnswers> = {},
  addresses = ['203.0.113.7'],
) {
  const folder = temporaryFolder()
  const path = join(folder, 'gateway.env')
  if (text !== undefined) writeFileSync(path, text)
  const place = { path, stateDirectory: join(folder, 'data'), machineAddresses: addresses }
  return planSettings(place, { ...ANSWERS, ...answers })
}

describe('settings of a gateway setup', () => {
  it('opens the usual ports to all machines, by IPv6 too where the server has it', () => {
    const settings = {
      GATEWAY_PUBLIC_NAMES: 'gw.example.com',
      GATEWAY_HTTP_LISTEN: '0.0.0.0:80',
      GATEWAY_HTTPS_LISTEN: '0.0.0.0:443',
      GATEWAY_AGENT_LISTEN: '0.0.0.0:4443',
      GATEWAY_RESERVED_DOMAIN: '*.tunnels.example.com',
    }
    expect(planned(undefined).changed).toEqual(settings)
    expect(planned(undefined, {}, ['203.0.113.7', '2001:db8::7']).changed).toMatchObject({
      GATEWAY_HTTPS_LISTEN: '[::]:443',
    })
  })

  it('changes nothing at the second run, and only a port that is given at the third', () => {
    const first = planned(undefined, { email: 'me@example.com' })
    const text = Object.entries(first.environment).map(([name, value]) => `${name}=${value}\n`)
    expect(planned(text.join('')).changed).toEqual({})
    expect(planned(text.join(''), { httpsPort: 8443 }).changed).toEqual({
      GATEWAY_HTTPS_LISTEN: '0.0.0.0:8443',
    })
  })

  it('keeps listeners and names of the owner, the new name first', () => {
    const text =
      'GATEWAY_HTTPS_LISTEN=203.0.113.7:9443\nGATEWAY_PUBLIC_NAMES="old.example.com, 203.0.113.7:14443"\n'
    const { changed, config } = planned(text, { addresses: ['203.0.113.7', '2001:db8::7'] })
    expect(changed).toMatchObject({
      GATEWAY_PUBLIC_NAMES: 'gw.example.com,old.example.com,203.0.113.7:14443,[2001:db8::7]',
    })
    expect(changed).not.toHaveProperty('GATEWAY_HTTPS_LISTEN')
    expect(config.publicNames[0]).toEqual({ host: 'gw.example.com', port: undefined })
    const kept = planned(text, { name: 'old.example.com', httpsPort: 443 }).changed
    expect(kept).not.toHaveProperty('GATEWAY_PUBLIC_NAMES')
    expect(kept).toMatchObject({ GATEWAY_HTTPS_LISTEN: '203.0.113.7:443' })
  })

  it('replaces the address that the server had before a move, and keeps those of its interfaces', () => {
    const text =
      'GATEWAY_PUBLIC_NAMES=gw.example.com,203.0.113.1,[2001:db8::1]:9,10.5.0.1,old.test\n'
    const namesOf = (addresses: string[]) =>
      planned(text, { addresses }, ['10.5.0.1']).environment.GATEWAY_PUBLIC_NAMES
    expect(namesOf(['203.0.113.2'])).toBe('gw.example.com,10.5.0.1,old.test,203.0.113.2')
    expect(namesOf(['2001:db8::1'])).toBe('gw.example.com,[2001:db8::1]:9,10.5.0.1,old.test')
    expect(namesOf([])).toBe('gw.example.com,203.0.113.1,[2001:db8::1]:9,10.5.0.1,old.test')
  })

  it('orders public certificates only with an email or a directory', () => {
    expect(planned(undefined).config.acme).toBeUndefined()
    expect(planned(undefined, { email: 'me@example.com' }).config.acme).toEqual({
      directoryUrl: PUBLIC_AUTHORITY,
      email: 'me@example.com',
    })
  })

  it('gives all nodes of a cluster the same parent of DNS targets', () => {
    const database = 'postgres://gw@db.example.com/site'
    const node = { database, peerListen: '10.0.0.1:4444' }
    const ofNode = (name: string, text = '', more: Partial<SetupAnswers> = {}) =>
      planned(text, { ...node, name, ...more }).config.cnameBase
    for (const name of ['gw1.example.com', 'gw2.example.com']) {
      expect(() => ofNode(name)).toThrow(/--cname-base.*same .*all nodes.*Nothing was written/)
      expect(ofNode(name, '', { cnameBase: 'site.example.com' })).toBe('site.example.com')
      expect(ofNode(name, 'GATEWAY_CNAME_BASE=old.example.com\n')).toBe('old.example.com')
    }
    const known = `GATEWAY_DATABASE_URL=${database}\nGATEWAY_PEER_LISTEN=10.0.0.1:4444\n`
    expect(planned(known).changed).not.toHaveProperty('GATEWAY_CNAME_BASE')
    expect(ofNode('gw1.example.com', known, { cnameBase: 'site.example.com' })).toBe(
      'site.example.com',
    )
  })

  it.each([
    [
      'GATEWAY_HTTPS_LISTEN=127.0.0.1:8443',
      {},
      /accepts no connection from other machines.*--https-port/,
    ],
    [
      'GATEWAY_TLS_CERT=/a\nGATEWAY_TLS_KEY=/b',
      { email: 'me@example.com' },
      /GATEWAY_TLS_CERT is set.*leave --email out/,
    ],
    [
      'GATEWAY_DATABASE_URL=postgres://a@one/x\nGATEWAY_PEER_LISTEN=10.0.0.1:4444',
      { database: 'postgres://a@two/x' },
      /set to another database/,
    ],
    [
      '',
      { database: 'postgres://a@one/x', cnameBase: 'site.example.com' },
      /cannot be used together.*requires GATEWAY_PEER_LISTEN/,
    ],
    [
      'GATEWAY_HTPS_LISTEN=0.0.0.0:1',
      {},
      /Did you mean GATEWAY_HTTPS_LISTEN\? Nothing was written\./,
    ],
    ['GATEWAY_PUBLIC_NAMES=*.example.com', {}, /GATEWAY_PUBLIC_NAMES .*wildcard/],
    ['', { dnsListen: '203.0.113.7:53' }, /--dns-listen .*--email or --acme-directory.*Nothing/],
    ['', { email: 'no address' }, /GATEWAY_ACME_EMAIL must be an email address/],
  ] as const)('refuses settings that contradict: %s %j', (text, answers, flaw) => {
    expect(() => planned(text, answers)).toThrow(flaw)
  })

  it('leaves values of the owner that it could not write itself', () => {
    const text =
      "GATEWAY_DATABASE_URL='postgres://gw:pa$$word@db.example.com/site'\n" +
      'GATEWAY_PEER_LISTEN=10.0.0.1:4444\nGATEWAY_CNAME_BASE=site.example.com\n'
    const { changed, config } = planned(text)
    expect(changed).not.toHaveProperty('GATEWAY_DATABASE_URL')
    expect(config.shared).toBeDefined()
  })

  it('refuses a value that a settings file cannot hold, without repeating it', () => {
    const database = 'postgres://gw:pa$$word@db.example.com/site'
    const node = { database, peerListen: '10.0.0.1:4444', cnameBase: 'site.example.com' }
    const refused = () => planned('', node)
    expect(refused).toThrow(/GATEWAY_DATABASE_URL has a character.*%24.*Nothing was written/)
    expect(refused).not.toThrow(/word@/)
  })

  it('leaves loopback listeners to a proxy in front', () => {
    const text = 'GATEWAY_HTTPS_LISTEN=127.0.0.1:8443\nGATEWAY_TRUSTED_PROXIES=127.0.0.1\n'
    expect(planned(text).changed).not.toHaveProperty('GATEWAY_HTTPS_LISTEN')
  })

  it('refuses a settings file that cannot be read', () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'gateway.env'))
    const place = {
      path: join(folder, 'gateway.env'),
      stateDirectory: folder,
      machineAddresses: [],
    }
    expect(() => planSettings(place, ANSWERS)).toThrow(
      /Cannot read .*gateway\.env \(EISDIR\)\. Run this command with sudo/,
    )
  })
})
