import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ForwardRules } from '../../../src/agent/upstreams/forward-rules.ts'
import { parseForwardTarget } from '../../../src/agent/upstreams/forward-target.ts'
import { StartError } from '../../../src/base/app-error.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const NAMES: Record<string, string[]> = {
  'printer.lan': ['192.168.1.7'],
  'device.lan': ['127.0.1.1'],
  'rebound.lan': ['192.168.1.7', '169.254.169.254'],
}

function rules(allow: string[] = [], own: number[] = []): ForwardRules {
  const ownAddresses = () => own.map((port) => ({ host: '127.0.0.1', port }))
  const resolve = async (name: string) => NAMES[name] ?? []
  return new ForwardRules({ allow, ownAddresses, resolve })
}

async function verdict(target: string, allow: string[] = [], own: number[] = []): Promise<string> {
  const parsed = parseForwardTarget(target)
  if (!parsed) throw new Error(`${target} is no target`)
  return rules(allow, own)
    .check(parsed)
    .then(
      () => 'allowed',
      (error) => `${error.code}: ${error.errors[0].detail}`,
    )
}

const NOT_LISTED = /^forwards-to-not-allowed: .* is not in AGENT_FORWARD_ALLOW/
const NEVER = /^forwards-to-not-allowed: .* is always blocked$/

describe('a Unix socket', () => {
  const verdictOf = (path: string, allow: string[], ownSockets: string[] = []) =>
    new ForwardRules({ allow, ownAddresses: () => [], ownSockets: () => ownSockets })
      .check({ path })
      .then(
        () => 'allowed',
        (error) => `${error.code}: ${error.errors[0].detail}`,
      )

  it.each<[string, string[], boolean]>([
    ['/run/app.sock', [], false],
    ['/run/app.sock', ['unix:/run/app.sock'], true],
    ['/run/app.sock', ['unix:/run/other.sock'], false],
    ['/run/app.sock.bak', ['unix:/run/app.sock'], false],
    ['/run/apps/one.sock', ['unix:/run/apps/'], true],
    ['/run/apps/deep/one.sock', ['unix:/run/apps/'], true],
    ['/run/apps', ['unix:/run/apps/'], false],
    ['/run/appsx/one.sock', ['unix:/run/apps/'], false],
    ['/run/app.sock', ['0.0.0.0/0', 'localhost'], false],
    ['/run/app.sock', ['unix:///run/app.sock'], true],
    ['/run/apps/one.sock', ['unix:///run/apps/'], true],
  ])('%s with %j: %s', async (path, allow, isAllowed) => {
    const verdict = await verdictOf(path, allow)
    if (isAllowed) expect(verdict).toBe('allowed')
    else expect(verdict).toMatch(NOT_LISTED)
  })

  it('of the agent itself is never led to, by no other name of it either', async () => {
    const folder = temporaryFolder()
    const [own, link] = [join(folder, 'api.sock'), join(folder, 'link.sock')]
    writeFileSync(own, '')
    symlinkSync(own, link)
    for (const path of [own, link]) {
      expect(await verdictOf(path, [`unix:${folder}/`], [own])).toContain(
        'the socket belongs to the agent',
      )
    }
    expect(await verdictOf(join(folder, 'app.sock'), [`unix:${folder}/`], [own])).toBe('allowed')
  })

  it('is not led to by a link out of what is listed', async () => {
    const folder = temporaryFolder()
    const [apps, other] = [join(folder, 'apps'), join(folder, 'other')]
    mkdirSync(apps)
    mkdirSync(other)
    const socket = join(other, 'app.sock')
    writeFileSync(socket, '')
    const [link, deep] = [join(apps, 'link.sock'), join(apps, 'deep')]
    symlinkSync(socket, link)
    symlinkSync(other, deep)
    const listed = [`unix:${apps}/`]
    for (const path of [link, join(deep, 'app.sock')]) {
      expect(await verdictOf(path, listed)).toMatch(NOT_LISTED)
      expect(await verdictOf(path, [...listed, `unix:${socket}`])).toBe('allowed')
    }
    expect(await verdictOf(link, [`unix:${link}`])).toMatch(NOT_LISTED)
    // A folder may be known by another name, as /var/run is.
    expect(await verdictOf(join(deep, 'app.sock'), [`unix:${deep}/`])).toBe('allowed')
    expect(await verdictOf(join(deep, 'app.sock'), [`unix:${deep}/app.sock`])).toBe('allowed')
  })

  it.each(['unix:', 'unix:app.sock', 'unix:/a/../b', 'unix:/a//'])(
    'cannot be listed as %s',
    (text) => {
      expect(() => new ForwardRules({ allow: [text], ownAddresses: () => [] })).toThrow(StartError)
    },
  )
})

describe('ForwardRules', () => {
  it('leads nowhere where a name has no address now', async () => {
    // RFC 6761 6.4: nobody has such a name.
    const allow = ['nobody.invalid']
    const asked = new ForwardRules({ allow, ownAddresses: () => [] })
    const target = parseForwardTarget('nobody.invalid:80')
    if (!target) throw new Error('it is no target')
    expect(await asked.check(target)).toEqual([])
  })

  it.each(['localhost:80', '127.0.0.1:80', '127.5.5.5:80', '[::1]:80', '[::ffff:127.0.0.1]:80'])(
    'allows %s without a list',
    async (target) => {
      expect(await verdict(target)).toBe('allowed')
    },
  )

  it.each(['192.168.1.5:80', '10.0.0.1:80', '[fd00::5]:80', '8.8.8.8:53', 'printer.lan:80'])(
    'refuses %s without a list',
    async (target) => {
      expect(await verdict(target)).toMatch(NOT_LISTED)
    },
  )

  it.each([
    ['192.168.1.5:80', '192.168.1.0/24'],
    ['192.168.1.5:80', '192.168.1.5'],
    ['192.168.1.5:80', '192.168.1.0/24:80'],
    ['[::ffff:192.168.1.5]:80', '192.168.1.5:80'],
    ['[fd00::5]:80', 'fd00::/8'],
    ['[fd00::5]:80', '[fd00::5]:80'],
    ['[fd00::5]:80', '[fd00::/8]:80'],
    ['printer.lan:80', 'printer.lan'],
    ['device.lan:80', 'device.lan:80'],
    ['no-such-name.invalid:80', 'No-Such-Name.invalid:80'],
  ])('allows %s when %s is listed', async (target, rule) => {
    expect(await verdict(target, [rule.toLowerCase()])).toBe('allowed')
    expect(await verdict(target, [rule])).toBe('allowed')
  })

  it.each([
    ['192.168.1.5:81', '192.168.1.0/24:80'],
    ['192.168.2.5:80', '192.168.1.0/24'],
    ['printer.lan:81', 'printer.lan:80'],
    ['other.lan:80', 'printer.lan'],
    ['printer.lan:80', '0.0.0.0/0'],
  ])('refuses %s when only %s is listed', async (target, rule) => {
    expect(await verdict(target, [rule])).toMatch(NOT_LISTED)
  })

  it.each([
    '169.254.169.254:80',
    '[::ffff:169.254.169.254]:80',
    '[64:ff9b::a9fe:a9fe]:80',
    '[2002:a9fe:a9fe::1]:80',
    '[64:ff9b:1::a9fe:a9fe]:80',
    '[64:ff9b:1:a9fe:a9:fe00::]:80',
    '[::a9fe:a9fe]:80',
    '100.100.100.200:80',
    '[fd00:ec2::254]:80',
    '[fe80::1]:80',
    '0.0.0.0:80',
    '0.1.2.3:80',
    '[::]:80',
    '224.0.0.1:80',
    '255.255.255.255:80',
    '[ff02::1]:80',
    'metadata.google.internal:80',
  ])('refuses %s whatever is listed', async (target) => {
    const everything = ['0.0.0.0/0', '::/0', 'metadata.google.internal']
    expect(await verdict(target, everything)).toMatch(NEVER)
  })

  it('refuses a listed name when one of its addresses is always blocked', async () => {
    expect(await verdict('rebound.lan:80', ['rebound.lan'])).toMatch(NEVER)
  })

  it("refuses the agent's own ports on this machine, and only there", async () => {
    const own = /port 7040 belongs to the agent$/
    expect(await verdict('localhost:7040', [], [7040])).toMatch(own)
    expect(await verdict('[::1]:7040', [], [7040])).toMatch(own)
    expect(await verdict('device.lan:7040', ['device.lan'], [7040])).toMatch(own)
    expect(await verdict('localhost:7041', [], [7040])).toBe('allowed')
    expect(await verdict('192.168.77.77:7040', ['192.168.77.0/24'], [7040])).toBe('allowed')
  })

  it.each(['', 'a b', '10.0.0.0/33', '10.1', 'http://a.lan', 'a.lan:99999', '[fd00::1', '*.lan'])(
    'stops the start for the rule %j and names it',
    (rule) => {
      expect(() => rules([rule])).toThrow(StartError)
      expect(() => rules([rule])).toThrow(`AGENT_FORWARD_ALLOW: ${rule}`)
    },
  )
})

it.each([
  ['https://cam.local:9103', 'cam.local:9103'],
  ['https://nas.lan', 'nas.lan:443'],
  ['http://192.168.1.20/video', '192.168.1.20:80'],
  ['tcp://10.0.0.7:22', '10.0.0.7:22'],
  ['rtsp://cam.lan', 'cam.lan:554'],
])('names the entry for the URL %s', (url, entry) => {
  expect(() => rules([url])).toThrow(`:port: write ${entry}.`)
  expect(() => rules([entry])).not.toThrow()
})
