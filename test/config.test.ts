import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Identity } from '../src/agent/device/device-id.ts'
import { heartbeatOf, timingsOf } from '../src/agent/timings.ts'
import { parseConfig } from '../src/config.ts'
import { SECRET_SETTINGS } from '../src/settings/settings.ts'
import { temporaryFolder } from './helpers/temporary-folder.ts'

describe('parseConfig', () => {
  it('needs no schema for a setting, which a start would have to build', () => {
    const folder = join(import.meta.dirname, '../src/settings')
    const files = readdirSync(folder)
    expect(files).toContain('gateway-settings.ts')
    for (const file of files) expect(readFileSync(join(folder, file), 'utf8')).not.toMatch(/'zod'/)
  })

  it('has a default for everything', () => {
    const { agent, gateway, logLevel } = parseConfig({})
    expect(agent.listen).toEqual({ host: '127.0.0.1', port: 7040 })
    expect(agent.dataDir).toBe(resolve('data'))
    expect(gateway.dataDir).toBe(resolve('data/gateway'))
    expect(gateway.httpsListen.port).toBe(8443)
    expect(gateway.rateLimits).toEqual({ maxKeys: 100_000, ipv6Prefix: 64 })
    expect(agent.authtoken).toBeUndefined()
    expect(logLevel).toBe('info')
  })

  it('knows one address of the service, several in their order, or none', () => {
    const addresses = (text: string) => parseConfig({ SVC_SERVER_ADDR: text }).agent.serverAddrs
    expect(addresses('')).toEqual([])
    expect(addresses('a.lan:4443')).toEqual(['a.lan:4443'])
    expect(addresses('b.lan:4443, 127.0.0.1:4443,b.lan:4443')).toEqual([
      'b.lan:4443',
      '127.0.0.1:4443',
      'b.lan:4443',
    ])
  })

  it('trusts proxies in front when their addresses are given', () => {
    const { proxies } = parseConfig({
      GATEWAY_TRUSTED_PROXIES: '10.0.0.0/8, 2001:db8::7',
      GATEWAY_PROXY_PROTOCOL: 'required',
    }).gateway
    expect(proxies?.networks.map(({ text }) => text)).toEqual(['10.0.0.0/8', '2001:db8::7'])
    expect(proxies).toMatchObject({ header: 'x-forwarded-for', sendProxyProtocol: true })
    expect(parseConfig({}).gateway.proxies).toBeUndefined()
  })

  it('says little on a metered link, and what is said otherwise counts more', () => {
    const link = (environment: Record<string, string>) => {
      const { agent } = parseConfig(environment)
      const { link, tunnel, probe } = timingsOf(agent)
      const { intervalMs, retryMs, echoMs } = probe
      return {
        heartbeat: heartbeatOf(agent.link),
        probe: { intervalMs, retryMs, echoMs },
        duplicateRetryMs: link.duplicateRetryMs,
        conflictRetryMs: tunnel.conflictRetryMs,
      }
    }
    expect(link({})).toEqual({
      heartbeat: { intervalS: 10, toleranceS: 15 },
      probe: { intervalMs: 30_000, retryMs: 5_000, echoMs: 13_000 },
      duplicateRetryMs: 5_000,
      conflictRetryMs: 20_000,
    })
    // The hosted service is asked less often than a gateway of ours.
    expect(link({ SVC_SERVER_ADDR: 'gw.test:4443' })).toMatchObject({ conflictRetryMs: 5_000 })
    expect(link({ AGENT_METERED: 'true' })).toEqual({
      heartbeat: { intervalS: 45, toleranceS: 13 },
      probe: { intervalMs: Infinity, retryMs: 30_000, echoMs: 48_000 },
      duplicateRetryMs: 780_000,
      conflictRetryMs: 60_000,
    })
    const own = { AGENT_HEARTBEAT_SECONDS: '20', AGENT_PROBE_SECONDS: '600' }
    expect(link({ ...own, AGENT_METERED: 'true' })).toMatchObject({
      heartbeat: { intervalS: 20, toleranceS: 13 },
      probe: { intervalMs: 600_000 },
    })
    expect(link({ ...own, AGENT_PROBE_SECONDS: '0' })).toMatchObject({
      heartbeat: { intervalS: 20, toleranceS: 15 },
      probe: { intervalMs: Infinity },
    })
    expect(parseConfig({ AGENT_TCP_NODELAY: 'false' }).agent.link.isNoDelay).toBe(false)
  })

  it.each([
    [{}, undefined],
    [{ AGENT_METERED: 'true' }, { interval_s: 45, tolerance_s: 13 }],
    [{ AGENT_HEARTBEAT_SECONDS: '20' }, { interval_s: 20, tolerance_s: 15 }],
  ])('sends heartbeats instead of the gateway if a setting of %j asks for it', (env, heartbeat) => {
    const identity = new Identity(parseConfig(env).agent.link)
    expect(JSON.parse(identity.metadata).heartbeat).toEqual(heartbeat)
  })

  it('reads how long services and silent connections may take', () => {
    expect(parseConfig({}).gateway.timeouts).toEqual({
      answerMs: 60_000,
      idleMs: 3_600_000,
      tcpIdleMs: 3_600_000,
    })
    const env = { GATEWAY_UPSTREAM_TIMEOUT: '300', GATEWAY_IDLE_SECONDS: '86400' }
    expect(parseConfig(env).gateway.timeouts).toMatchObject({
      answerMs: 300_000,
      idleMs: 86_400_000,
    })
    for (const value of ['0', '3601', '1.5', 'x']) {
      expect(() => parseConfig({ GATEWAY_UPSTREAM_TIMEOUT: value })).toThrow(
        'GATEWAY_UPSTREAM_TIMEOUT must be a whole number of seconds from 1 to 3600',
      )
    }
  })

  it('reads quantities in the units of their users', () => {
    const units = ({ gateway }: ReturnType<typeof parseConfig>) => {
      const { bufferBytes, leastRate, drainMs, holdMs } = gateway
      return { bufferBytes, leastRate, drainMs, holdMs }
    }
    const defaults = {
      bufferBytes: 201_326_592,
      leastRate: 16_000,
      drainMs: 10_000,
      holdMs: 10_000,
    }
    expect(units(parseConfig({}))).toEqual(defaults)
    const settings = {
      GATEWAY_BUFFER_MB: '8',
      GATEWAY_LEAST_RATE: '0',
      GATEWAY_DRAIN_SECONDS: '0.5',
      GATEWAY_HOLD_SECONDS: '60',
    }
    expect(units(parseConfig(settings))).toEqual({
      bufferBytes: 8_388_608,
      leastRate: 0,
      drainMs: 500,
      holdMs: 60_000,
    })
  })

  it('knows the settings that a child process or a crash dump must not contain', () => {
    expect(SECRET_SETTINGS).toEqual([
      'SVC_AUTHTOKEN',
      'SVC_AUTHTOKEN_JOINED',
      'SVC_API_KEY',
      'AGENT_API_TOKEN',
      'GATEWAY_SMTP_URL',
      'GATEWAY_DATABASE_URL',
    ])
  })

  it('takes an empty value for an unset one', () => {
    expect(parseConfig({ AGENT_DOMAIN: '', LOG_LEVEL: '' }).agent.domain).toBeUndefined()
  })

  it.each([
    ['AGENT_LISTEN', 'here', 'AGENT_LISTEN must be host:port'],
    ['AGENT_LISTEN', '127.0.0.1:99999', 'AGENT_LISTEN must be host:port'],
    ['SVC_SERVER_ADDR', 'https://gateway', 'SVC_SERVER_ADDR must be host:port'],
    ['SVC_SERVER_ADDR', 'a:1,b', 'SVC_SERVER_ADDR must be host:port, or up to 5 addresses'],
    ['SVC_SERVER_ADDR', 'a:1,', 'SVC_SERVER_ADDR must be host:port, or up to 5 addresses'],
    ['SVC_SERVER_ADDR', 'a:1;b:1', 'SVC_SERVER_ADDR must be host:port, or up to 5 addresses'],
    ['SVC_SERVER_ADDR', 'a:0', 'SVC_SERVER_ADDR must be host:port, or up to 5 addresses'],
    ['SVC_SERVER_ADDR', 'a:1,b:1,c:1,d:1,e:1,f:1', 'SVC_SERVER_ADDR must be host:port, or up to 5'],
    ['SVC_SERVER_ADDR', '[::1]:4443', 'SVC_SERVER_ADDR cannot be an IPv6 address, because the SDK'],
    ['SVC_SERVER_ADDR', 'a:1,[fd00::7]:4443', 'Write a host name of the gateway that resolves'],
    [
      'GATEWAY_TRUSTED_PROXIES',
      '10.0.0.0/8, proxy.lan',
      'GATEWAY_TRUSTED_PROXIES must be addresses',
    ],
    [
      'GATEWAY_TRUSTED_PROXIES',
      '10.0.0.0/33',
      'GATEWAY_TRUSTED_PROXIES must be addresses or CIDRs',
    ],
    ['GATEWAY_PROXY_PROTOCOL', 'on', 'GATEWAY_PROXY_PROTOCOL must be off or required'],
    ['GATEWAY_PROXY_PROTOCOL', 'required', 'requires GATEWAY_TRUSTED_PROXIES, the addresses of'],
    ['GATEWAY_FORWARDED_HEADER', 'x-real-ip', 'GATEWAY_FORWARDED_HEADER must be x-forwarded-for'],
    ['AGENT_DRAIN_SECONDS', '61', 'AGENT_DRAIN_SECONDS must be a whole number of seconds from 0'],
    ['AGENT_DRAIN_SECONDS', '10s', 'AGENT_DRAIN_SECONDS must be a whole number of seconds from 0'],
    ['AGENT_METERED', 'yes', 'AGENT_METERED must be true or false'],
    ['AGENT_HEARTBEAT_SECONDS', '4', 'AGENT_HEARTBEAT_SECONDS must be a whole number of seconds'],
    ['AGENT_PROBE_SECONDS', '9', 'AGENT_PROBE_SECONDS must be a whole number of seconds from 10'],
    ['AGENT_DOMAIN', 'no spaces.example', 'AGENT_DOMAIN must be a domain name'],
    ['AGENT_MAX_TUNNELS', 'many', 'AGENT_MAX_TUNNELS must be a whole number'],
    ['AGENT_MAX_TUNNELS', '0', 'AGENT_MAX_TUNNELS must be a whole number'],
    ['LOG_LEVEL', 'loud', 'LOG_LEVEL must be one of trace, debug'],
    ['AGENT_API_TOKEN', 'short', 'AGENT_API_TOKEN must have at least 20 characters'],
    [
      'AGENT_API_TOKEN',
      'correct horse battery staple',
      'AGENT_API_TOKEN must contain only letters',
    ],
    ['AGENT_API_TOKEN', 'kein-Schlüssel-für-Köpfe', 'AGENT_API_TOKEN must contain only letters'],
    ['GATEWAY_TLS_CERT', 'c.pem', 'GATEWAY_TLS_CERT and GATEWAY_TLS_KEY must be set together'],
    [
      'GATEWAY_SMTP_FROM',
      'a@b.example',
      'GATEWAY_SMTP_URL and GATEWAY_SMTP_FROM must be set together',
    ],
    ['GATEWAY_SMTP_URL', 'smtp://u:hunter2@', 'GATEWAY_SMTP_URL must be smtp://'],
    ['GATEWAY_ACME_DIRECTORY', 'acme', 'GATEWAY_ACME_DIRECTORY must be an https URL'],
    ['GATEWAY_ACME_DIRECTORY', 'http://a.test/d', 'GATEWAY_ACME_DIRECTORY must be an https URL'],
    [
      'GATEWAY_DATABASE_URL',
      'mysql://a@b/c',
      'GATEWAY_DATABASE_URL must be postgres://user@host/data',
    ],
    [
      'GATEWAY_DATABASE_URL',
      'postgres://a@localhost/c',
      'GATEWAY_DATABASE_URL requires GATEWAY_PEER_L',
    ],
    ['GATEWAY_PEER_LISTEN', '10.0.0.1:4444', 'GATEWAY_PEER_LISTEN is only used in a cluster'],
    ['GATEWAY_JOIN_TOKEN_FILE', 'token', 'GATEWAY_JOIN_TOKEN_FILE is only used in a cluster'],
    ['GATEWAY_ACME_EMAIL', 'me', 'GATEWAY_ACME_EMAIL must be an email address'],
    ['GATEWAY_DNS_SERVERS', '127.0.0.1, dns.lan', 'GATEWAY_DNS_SERVERS must be IP addresses'],
    ['GATEWAY_OUTBOUND_ALLOW', 'a b/c', 'GATEWAY_OUTBOUND_ALLOW cannot list b/c: not a host'],
    [
      'GATEWAY_OUTBOUND_ALLOW',
      '169.254.169.254',
      'connections to 169.254.0.0/16 are always blocked.',
    ],
    ['GATEWAY_RESERVED_DOMAIN', '*.*.x.y', 'GATEWAY_RESERVED_DOMAIN must be a wildcard domain'],
    ['GATEWAY_RESERVED_DOMAIN', 'x.y', 'GATEWAY_RESERVED_DOMAIN must be a wildcard domain'],
    ['GATEWAY_RATE_LIMIT_KEYS', '999', 'GATEWAY_RATE_LIMIT_KEYS must be a whole number from 1000'],
    ['GATEWAY_RATE_LIMIT_KEYS', '2000000', 'GATEWAY_RATE_LIMIT_KEYS must be a whole number from'],
    [
      'GATEWAY_RATE_LIMIT_IPV6_PREFIX',
      '31',
      'GATEWAY_RATE_LIMIT_IPV6_PREFIX must be a whole number of bits',
    ],
    [
      'GATEWAY_RATE_LIMIT_IPV6_PREFIX',
      '129',
      'GATEWAY_RATE_LIMIT_IPV6_PREFIX must be a whole number of bits',
    ],
    ['GATEWAY_RATE_LIMIT_KEYS', '1e3.5', 'GATEWAY_RATE_LIMIT_KEYS must be a whole number from'],
    [
      'GATEWAY_PUBLIC_NAMES',
      'https://gw.example.com/',
      'GATEWAY_PUBLIC_NAMES cannot list https://gw',
    ],
    ['SVC_AUTHTOKN', 'x', 'Unknown setting SVC_AUTHTOKN. Did you mean SVC_AUTHTOKEN?'],
    ['AGENT_COLOUR_OF_THE_BOX', 'x', 'Unknown setting AGENT_COLOUR_OF_THE_BOX.'],
  ])('refuses %s=%s in one sentence', (name, value, sentence) => {
    expect(() => parseConfig({ [name]: value })).toThrow(sentence)
  })

  it('reads where certificates are ordered, and who answers for DNS', () => {
    const { gateway } = parseConfig({
      GATEWAY_ACME_DIRECTORY: 'https://acme.test/directory',
      GATEWAY_ACME_EMAIL: 'site@example.com',
      GATEWAY_DNS_LISTEN: '0.0.0.0:53',
      GATEWAY_DNS_SERVERS: '127.0.0.1:5353 [::1]:5353,9.9.9.9,::1',
      GATEWAY_OUTBOUND_ALLOW: 'keys.lan:443, 10.0.0.0/8',
      GATEWAY_API_HOSTS: 'gateway.lan',
      GATEWAY_CNAME_BASE: 'Gateway.Example.com',
    })
    expect(gateway).toMatchObject({
      acme: { directoryUrl: 'https://acme.test/directory', email: 'site@example.com' },
      dnsListen: { host: '0.0.0.0', port: 53 },
      dnsServers: ['127.0.0.1:5353', '[::1]:5353', '9.9.9.9', '::1'],
      outboundAllow: [
        { kind: 'name', name: 'keys.lan', port: 443 },
        { kind: 'range', port: undefined },
      ],
      apiHosts: ['gateway.lan'],
      cnameBase: 'gateway.example.com',
    })
  })

  it('takes the first public name for visitors, but not in a cluster', () => {
    const hosts = (names: string, more = {}) => {
      const { gateway } = parseConfig({ GATEWAY_PUBLIC_NAMES: names, ...more })
      return [gateway.cnameBase, gateway.sharedCnameTarget, gateway.tcpHost]
    }
    const fallback = 'gateway.localhost'
    const name = 'gw.example.com'
    expect(hosts(`203.0.113.7, [2001:db8::7], ${name}:14443`)).toEqual([name, name, name])
    expect(hosts('[::1], 203.0.113.7')).toEqual([fallback, undefined, '203.0.113.7'])
    expect(hosts('localhost, gw.localhost')).toEqual([fallback, undefined, fallback])
    const base = 'cname.example.com'
    expect(hosts(name, { GATEWAY_CNAME_BASE: base })).toEqual([base, base, base])
    const several = {
      GATEWAY_DATABASE_URL: 'postgres://gateway@localhost/site',
      GATEWAY_PEER_LISTEN: '10.0.0.1:4444',
    }
    expect(hosts(name, several)).toEqual([fallback, undefined, fallback])
  })

  it('reads where several gateways meet', () => {
    const url = 'postgres://gateway:canary@db.lan/site?sslmode=verify-full'
    const several = { GATEWAY_DATABASE_URL: url, GATEWAY_PEER_LISTEN: '10.0.0.1:4444' }
    const { gateway } = parseConfig({ ...several, GATEWAY_DATABASE_PASSWORD_FILE: 'password' })
    expect(gateway.shared).toMatchObject({
      server: { address: { host: 'db.lan', user: 'gateway' }, passwordPath: resolve('password') },
      peerListen: { host: '10.0.0.1', port: 4444 },
      peerAddress: { host: '10.0.0.1', port: 4444 },
      joinTokenPath: undefined,
    })
    expect(gateway.shared?.server.password?.reveal()).toBe('canary')
    expect(inspect(gateway, { depth: 9 }) + JSON.stringify(gateway)).not.toContain('canary')
    expect(parseConfig({}).gateway.shared).toBeUndefined()
  })

  it('refuses what several gateways cannot work with', () => {
    const url = 'postgres://gateway@localhost/site'
    const several = { GATEWAY_DATABASE_URL: url, GATEWAY_PEER_LISTEN: '0.0.0.0:4444' }
    expect(() => parseConfig(several)).toThrow('GATEWAY_PEER_ADDRESS must be set')
    const found = { ...several, GATEWAY_PEER_ADDRESS: 'one.lan:4444' }
    expect(parseConfig(found).gateway.shared?.peerAddress).toEqual({ host: 'one.lan', port: 4444 })
    expect(() => parseConfig({ ...found, GATEWAY_HTTP_LISTEN: '0.0.0.0:0' })).toThrow(
      'GATEWAY_HTTP_LISTEN has port 0',
    )
    const anyPort = { ...several, GATEWAY_PEER_LISTEN: '127.0.0.1:0' }
    expect(() => parseConfig(anyPort)).toThrow('GATEWAY_PEER_LISTEN has port 0')
    expect(() => parseConfig({ ...found, GATEWAY_PEER_ADDRESS: 'one.lan:0' })).toThrow(
      'GATEWAY_PEER_ADDRESS has port 0',
    )
    // Without GATEWAY_DNS_LISTEN, certificates are ordered on demand.
    const acme = { GATEWAY_ACME_DIRECTORY: 'https://a.test/d' }
    const { gateway } = parseConfig({ ...found, ...acme })
    expect(gateway.acme).toEqual({ directoryUrl: 'https://a.test/d', email: undefined })
  })

  it('says all that is wrong at once and repeats no value', () => {
    const broken = { AGENT_LISTEN: 'canary', SVC_SERVER_ADDR: 'canary', AGENT_X: 'canary' }
    const parse = () => parseConfig(broken)
    for (const name of Object.keys(broken)) expect(parse).toThrow(name)
    expect(parse).not.toThrow(/canary/)
  })

  it('prints no secret', () => {
    const config = parseConfig({
      SVC_AUTHTOKEN: 'canary-a',
      AGENT_API_TOKEN: 'canary-bbbbbbbbbbbbbbbb',
    })
    expect(inspect(config, { depth: 5 }) + JSON.stringify(config)).not.toContain('canary')
    expect(config.agent.authtoken?.reveal()).toBe('canary-a')
  })

  it('keeps its data in the folders that systemd names', () => {
    const config = parseConfig({ STATE_DIRECTORY: '/var/lib/device-agent' })
    expect(config.agent.dataDir).toBe('/var/lib/device-agent')
    expect(config.gateway.dataDir).toBe('/var/lib/device-agent/gateway')
  })

  it('prefers systemd credentials over everything else', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'svc-authtoken'), 'from-systemd\n')
    writeFileSync(join(folder, 'api-token'), 'a-token-from-systemd\n')
    const { agent } = parseConfig({
      CREDENTIALS_DIRECTORY: folder,
      SVC_AUTHTOKEN_FILE: '/elsewhere',
      AGENT_API_TOKEN: 'a-token-from-the-environment',
    })
    expect(agent.authtokenFile).toBe(join(folder, 'svc-authtoken'))
    expect(agent.apiToken?.reveal()).toBe('a-token-from-systemd')
  })

  it.each(['', 'short', 'correct horse battery staple'])(
    'refuses %j as the credential of the API: nobody could send it',
    (token) => {
      const folder = temporaryFolder()
      writeFileSync(join(folder, 'api-token'), token)
      expect(() => parseConfig({ CREDENTIALS_DIRECTORY: folder })).toThrow(
        /^The credential api-token must .+\.$/,
      )
    },
  )

  it('uses the policy file of the configuration folder, else the shipped one', () => {
    const folder = temporaryFolder()
    const shipped = resolve(import.meta.dirname, '../default-policy.json')
    expect(parseConfig({ CONFIGURATION_DIRECTORY: folder }).agent.defaultPolicyPath).toBe(shipped)
    writeFileSync(join(folder, 'default-policy.json'), '{}')
    expect(parseConfig({ CONFIGURATION_DIRECTORY: folder }).agent.defaultPolicyPath).toBe(
      join(folder, 'default-policy.json'),
    )
    expect(parseConfig({ AGENT_DEFAULT_POLICY: '/x/p.json' }).agent.defaultPolicyPath).toBe(
      '/x/p.json',
    )
  })
})
