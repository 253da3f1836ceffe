import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
} from 'vitest'
import { type EchoUpstream, startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { MAIN, runProgram } from '../helpers/program.ts'
import { Site } from '../helpers/site.ts'
import { lastingAddress } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const OWN_POLICY = {
  on_http_response: [
    { actions: [{ type: 'add-headers', config: { headers: { 'x-own': 'yes' } } }] },
  ],
}

/** A site in its folder, with one tunnel that has a policy; its programs end with the test. */
async function siteWithTunnel(upstream: EchoUpstream) {
  const folder = temporaryFolder()
  const site = await Site.start(folder)
  onTestFinished(() => site.stop())
  expect((await site.create('first.site.localhost', upstream.port, OWN_POLICY)).ok).toBe(true)
  await site.online(1)
  return { folder, site }
}

const run = (args: string[], env: Record<string, string> = {}) => runProgram({ args, env })

describe('backup and restore', () => {
  let upstream: EchoUpstream
  beforeEach(async () => {
    upstream = await startEchoUpstream()
  })
  afterEach(() => upstream.close())

  it('moves a device to new hardware while visitors come, with names, policies and identity', async () => {
    const { folder, site } = await siteWithTunnel(upstream)
    let isOver = false
    const visits = (async () => {
      let count = 0
      for (; !isOver; count += 1)
        expect((await site.visit('first.site.localhost')).status).toBe(200)
      return count
    })()
    const file = join(folder, 'device.backup')
    const { code, stdout, stderr } = await run([
      'backup',
      file,
      '--data-dir',
      join(folder, 'agent'),
      '--json',
    ])
    isOver = true
    expect([code, stderr]).toEqual([0, ''])
    expect(await visits).toBeGreaterThan(0)
    const deviceId = readFileSync(join(folder, 'agent/device-id'), 'utf8').trim()
    expect(JSON.parse(stdout)).toMatchObject({
      file,
      role: 'agent',
      device_id: deviceId,
      encrypted: false,
    })
    expect(statSync(file).mode & 0o777).toBe(0o600)

    // The old hardware is gone.
    await site.agent.end('SIGKILL')
    const fresh = join(folder, 'fresh')
    const restored = await run(['restore', file, '--data-dir', fresh])
    expect(restored).toMatchObject({ code: 0, stderr: '' })
    expect(restored.stdout).toContain('If this is another machine, stop the agent on the old')
    expect(restored.stdout).toContain('device-agent run or device-agent up, in its folder.')
    await site.startAgent({ AGENT_DATA_DIR: fresh })
    await eventually(async () => {
      const answer = await site.visit('first.site.localhost')
      expect([answer.status, answer.headers['x-own']]).toEqual([200, 'yes'])
    })
    expect(readFileSync(join(fresh, 'device-id'), 'utf8').trim()).toBe(deviceId)
    const status = await (await site.call('GET', '/status')).json()
    // The database counts as whole: nobody has to confirm a loss.
    expect(status).toMatchObject({ healthy: true, ready: true, device_id: deviceId })
    expect(existsSync(join(fresh, 'agent.db.losses'))).toBe(false)
    expect(site.agent.stderr).not.toMatch(/damaged/)
  })

  it('moves a gateway to a new server: devices, visitors and API keys go on', async () => {
    const { folder, site } = await siteWithTunnel(upstream)
    const made = await site.manage('POST', '/bot_users', { name: 'press line' })
    const { id } = (await made.json()) as { id: string }
    const file = join(folder, 'gateway.backup')
    const old = join(folder, 'gateway')
    expect(await run(['gateway', 'backup', file, '--data-dir', old])).toMatchObject({
      code: 0,
      stderr: '',
    })
    await site.gateway.end('SIGKILL')
    // The new server has the same address; all data of the old one are gone.
    const lost = join(folder, 'lost')
    execFileSync('mv', [old, lost])
    const restored = await run(['gateway', 'restore', file, '--data-dir', old, '--json'])
    expect(restored).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(restored.stdout)).toMatchObject({
      restored: true,
      data_dir: old,
      previous_data: null,
    })
    await site.startGateway()
    await site.online(1)
    await eventually(async () => {
      expect((await site.visit('first.site.localhost')).status).toBe(200)
    })
    expect(await (await site.manage('GET', `/bot_users/${id}`)).json()).toMatchObject({
      name: 'press line',
    })
    for (const name of ['ca.pem', 'ca.key', 'login.key', 'authtoken', 'api-key']) {
      expect(readFileSync(join(old, name)).equals(readFileSync(join(lost, name))), name).toBe(true)
    }
    expect(site.gateway.stderr).not.toMatch(/damaged/)
  })

  it('knows every file in the data directories', async () => {
    const { ROLES, ownNames } = await import('../../src/cli/backup/roles.ts')
    const { folder, site } = await siteWithTunnel(upstream)
    await site.stop()
    for (const [role, place] of [
      [ROLES.agent, 'agent'],
      [ROLES.gateway, 'gateway'],
    ] as const) {
      const own = ownNames(role, join(folder, place))
      const others = readdirSync(join(folder, place)).filter((name) => !own.includes(name))
      // The lock is held during a restore. Sockets are made anew.
      expect(others.filter((name) => !name.endsWith('.sock'))).toEqual([`${role.name}.lock`])
    }
  })

  it('refuses what would lose data or mix it, and changes nothing', async () => {
    const { folder, site } = await siteWithTunnel(upstream)
    const [agent, gateway] = [join(folder, 'agent'), join(folder, 'gateway')]
    const file = join(folder, 'b')
    await run(['backup', file, '--data-dir', agent])
    const refusals: [string[], string][] = [
      [
        ['restore', file, '--data-dir', agent, '--replace'],
        'Another agent is using the data directory',
      ],
      [
        ['gateway', 'restore', file, '--data-dir', gateway, '--replace'],
        'This is a backup of an agent. Use device-agent restore.',
      ],
      [['backup', file, '--data-dir', agent], 'already exists'],
      [['backup', join(folder, 'x'), '--data-dir', gateway], 'contains no data of an agent'],
      [['backup', join(folder, 'x'), '--data-dir', agent, '--encrypt'], 'There is no terminal'],
    ]
    for (const [args, reason] of refusals) {
      const { code, stderr, stdout } = await run(args)
      expect([code, stdout], reason).toEqual([1, ''])
      expect(stderr).toContain(reason)
    }
    expect(existsSync(join(folder, 'x'))).toBe(false)
    await site.stop()
    const full = await run(['restore', file, '--data-dir', agent])
    expect([full.code, full.stderr]).toEqual([1, expect.stringContaining('Add --replace')])
    const dry = await run(['restore', file, '--data-dir', agent, '--dry-run'])
    expect(dry.stdout).toContain('is sound: agent dev_')
    expect(dry.stdout).toContain('Nothing was changed.')
    expect(readdirSync(agent).filter((name) => /before-restore|replacement/.test(name))).toEqual([])
    const replaced = await run(['restore', file, '--data-dir', agent, '--replace', '--json'])
    const { previous_data: previous } = JSON.parse(replaced.stdout)
    expect(existsSync(join(previous, 'agent.db'))).toBe(true)
  })

  it('encrypts with a passphrase from a file, which the restore needs', async () => {
    const { folder } = await siteWithTunnel(upstream)
    const [file, key] = [join(folder, 'b'), join(folder, 'passphrase')]
    const place = ['--data-dir', join(folder, 'agent'), '--passphrase-file', key]
    writeFileSync(key, 'short\n')
    expect((await run(['backup', file, ...place])).stderr).toContain('at least 12 characters')
    writeFileSync(key, 'correct horse battery\n')
    expect((await run(['backup', file, ...place])).stdout).toContain('It is encrypted.')
    expect((await run(['restore', file, '--dry-run'])).stderr).toContain('is encrypted')
    const fresh = join(folder, 'fresh')
    expect(
      await run(['restore', file, '--data-dir', fresh, '--passphrase-file', key]),
    ).toMatchObject({ code: 0 })
    writeFileSync(key, 'wrong horse battery\n')
    const wrong = await run([
      'restore',
      file,
      '--data-dir',
      join(folder, 'f2'),
      '--passphrase-file',
      key,
    ])
    expect(wrong.stderr).toContain('The passphrase is wrong')
    expect(existsSync(join(folder, 'f2'))).toBe(false)
  })

  it('asks for the passphrase at a terminal, which does not show it', async () => {
    const { folder } = await siteWithTunnel(upstream)
    const file = join(folder, 'b')
    const passphrase = 'correct horse battery'
    for (const [args, prompts] of [
      [['backup', file, '--encrypt', '--data-dir', join(folder, 'agent')], 2],
      [['restore', file, '--dry-run'], 1],
    ] as const) {
      const command = [process.execPath, MAIN, ...args].join(' ')
      const child = spawn('script', ['-qec', command, '/dev/null'], {
        env: { PATH: process.env.PATH ?? '', TERM: 'dumb' },
      })
      onTestFinished(() => void child.kill('SIGKILL'))
      let screen = ''
      let typed = 0
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        screen += text
        const asked = screen.split(/Passphrase(?: again)?: /).length - 1
        // The moment that it is asked for.
        for (; typed < asked; typed += 1) child.stdin.write(`${passphrase}\r`)
      })
      const [code] = await once(child, 'close')
      expect([code, typed], screen).toEqual([0, prompts])
      expect(screen).not.toContain(passphrase)
    }
  })

  it('makes no backup of a damaged database', async () => {
    const { folder, site } = await siteWithTunnel(upstream)
    await site.stop()
    const broken = join(folder, 'broken')
    cpSync(join(folder, 'agent'), broken, {
      recursive: true,
      filter: (path) => !path.endsWith('.sock'),
    })
    const bytes = readFileSync(join(broken, 'agent.db'))
    bytes.fill(0x55, 4_096, 12_288)
    writeFileSync(join(broken, 'agent.db'), bytes)
    const { code, stderr } = await run(['backup', join(folder, 'b'), '--data-dir', broken])
    expect([code, stderr]).toEqual([1, expect.stringContaining('is damaged')])
    expect(existsSync(join(folder, 'b'))).toBe(false)
  })
})

describe.skipIf(!hasPostgres)('backup and restore of a cluster', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Settings of a gateway with a new, empty database. */
  const settingsFor = async (dataDir: string) => {
    const { host, port, database, user, password } = await postgres.database()
    const secret = encodeURIComponent(password?.reveal() ?? '')
    const settings = {
      GATEWAY_DATABASE_URL: `postgres://${user}:${secret}@${host}:${port}/${database}`,
      GATEWAY_PEER_LISTEN: `127.0.0.1:${lastingAddress().port}`,
      GATEWAY_HTTP_LISTEN: `127.0.0.1:${lastingAddress().port}`,
      GATEWAY_HTTPS_LISTEN: `127.0.0.1:${lastingAddress().port}`,
      GATEWAY_DATA_DIR: dataDir,
      LOG_LEVEL: 'warn',
    }
    return { settings, query: (sql: string) => postgres.query(sql, database) }
  }

  it('puts all records and keys of a running site into an empty database, once', async () => {
    const folder = temporaryFolder()
    const { settings, query } = await settingsFor(join(folder, 'old'))
    const old = await GatewayProgram.start(folder, settings)
    const kept = (name: string) => readFileSync(join(folder, 'old', name), 'utf8')
    // As an ACME authority would have issued it.
    const key = kept('ca.key')
    const pem = `${kept('ca.pem')}${key}`
    await query(`INSERT INTO site_secrets VALUES ('acme-account.key', '${key}')`)
    await query(`INSERT INTO certificates (domain, authority, key_type, number, pem)
      VALUES ('rd_1', 'acme.test', 'ecdsa', 7, '${pem}')`)
    // Rows come while the copy is made; each that was acknowledged before is in it.
    const before = await old.manage('POST', '/bot_users', { name: 'press line' })
    let isOver = false
    const writes = (async () => {
      for (let n = 0; !isOver; n += 1) {
        expect((await old.manage('POST', '/bot_users', { name: `n${n}` })).status).toBe(201)
      }
    })()
    const file = join(folder, 'site.backup')
    const made = await run(['gateway', 'backup', file, '--json'], settings)
    isOver = true
    await writes
    expect([made.code, made.stderr]).toEqual([0, ''])
    expect(JSON.parse(made.stdout)).toMatchObject({ role: 'gateway', cluster: true })
    await old.program.end()

    const fresh = join(folder, 'new')
    const alone = await run(['gateway', 'restore', file, '--data-dir', fresh])
    expect([alone.code, alone.stderr]).toEqual([
      1,
      expect.stringContaining('a backup of a cluster'),
    ])
    const { settings: target, query: targetQuery } = await settingsFor(fresh)
    // Not over the records of a site.
    const mixed = await run(['gateway', 'restore', file], { ...settings, GATEWAY_DATA_DIR: fresh })
    expect([mixed.code, mixed.stderr]).toEqual([1, expect.stringContaining('two sites')])
    expect(readdirSync(fresh)).toEqual(['gateway.lock'])

    const restored = await run(['gateway', 'restore', file], target)
    expect([restored.code, restored.stderr]).toEqual([0, ''])
    expect(restored.stdout).toContain('device-agent gateway join-token')
    expect(restored.stdout).toContain('device-agent service install --gateway')
    const secrets = "SELECT content FROM site_secrets WHERE name = 'acme-account.key'"
    expect(await targetQuery(secrets)).toEqual([{ content: key }])
    const certificates = 'SELECT domain, authority, key_type, pem FROM certificates'
    expect(await targetQuery(certificates)).toEqual(await query(certificates))
    const first = await GatewayProgram.start(folder, target)
    expect([first.apiKey, first.ca]).toEqual([old.apiKey, old.ca])
    for (const name of ['ca.key', 'login.key', 'authtoken']) {
      expect(readFileSync(join(fresh, name), 'utf8'), name).toBe(kept(name))
    }
    const found = await first.manage('GET', `/bot_users/${before.body.id}`)
    expect(found).toMatchObject({ status: 200, body: { name: 'press line' } })
    expect(first.program.stderr).not.toMatch(/damaged|another key/)

    // Another gateway joins the restored site.
    const token = await run(['gateway', 'join-token', '--json'], target)
    expect(token.stderr).toBe('')
    writeFileSync(join(folder, 'token'), JSON.parse(token.stdout).token)
    const second = await GatewayProgram.start(folder, {
      ...target,
      GATEWAY_PEER_LISTEN: `127.0.0.2:${lastingAddress().port}`,
      GATEWAY_HTTP_LISTEN: target.GATEWAY_HTTP_LISTEN.replace('127.0.0.1', '127.0.0.2'),
      GATEWAY_HTTPS_LISTEN: target.GATEWAY_HTTPS_LISTEN.replace('127.0.0.1', '127.0.0.2'),
      GATEWAY_DATA_DIR: join(folder, 'second'),
      GATEWAY_JOIN_TOKEN_FILE: join(folder, 'token'),
    })
    expect((await second.manage('GET', `/bot_users/${before.body.id}`)).status).toBe(200)
  })
})
