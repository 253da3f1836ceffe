import { once } from 'node:events'
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { PassThrough } from 'node:stream'
import { parse } from 'dotenv'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { apiKeyPath } from '../../../src/cli/api-key-file.ts'
import { createProgram } from '../../../src/cli/program.ts'
import { exitCodeOf } from '../../../src/cli/program-failure.ts'
import { NameCheck } from '../../../src/cli/setup/name-check.ts'
import { type SetupRun, settingsPlace, setup } from '../../../src/cli/setup/setup.ts'
import { completeAnswers } from '../../../src/cli/setup/setup-command.ts'
import { planSettings, type SetupAnswers } from '../../../src/cli/setup/setup-plan.ts'
import type { SetupView } from '../../../src/cli/setup/setup-report.ts'
import { AcmeServer } from '../../helpers/acme-server.ts'
import { type DnsZone, startDnsServer } from '../../helpers/dns-server.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { Program } from '../../helpers/program.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const NEVER = new AbortController().signal
const OWN = '198.51.100.7'

interface Server {
  readonly root: string
  readonly envPath: string
  readonly answers: SetupAnswers
  /** Runs the command. */
  run(
    run?: SetupRun,
    answers?: Partial<SetupAnswers>,
    clock?: Clock,
  ): Promise<SetupView & { code: number; text: string }>
  /** Starts the gateway as a supervisor does, from the settings file. */
  start(): Promise<Program>
  settings(): Record<string, string>
}

/** A server with a root of its own, and this DNS zone. */
async function server(zone: DnsZone, before = ''): Promise<Server> {
  const root = temporaryFolder()
  const envPath = join(root, 'etc/device-gateway/gateway.env')
  const { first } = somePorts(5)
  const given = `# mine\nGATEWAY_API_LISTEN=127.0.0.1:${first}\nGATEWAY_DNS_SERVERS=${await startDnsServer(zone)}\n`
  mkdirSync(dirname(envPath), { recursive: true })
  writeFileSync(envPath, given + before)
  const answers = {
    domain: '*.tunnels.example.com',
    name: 'gw.example.com',
    addresses: [],
    ...{ httpPort: first + 1, httpsPort: first + 2, agentPort: first + 3 },
  }
  const settings = () => parse(readFileSync(envPath, 'utf8'))
  const run = async (
    run: SetupRun = {},
    more: Partial<SetupAnswers> = {},
    clock: Clock = systemClock,
  ) => {
    const stdout = new PassThrough()
    const stderr = new PassThrough()
    const context = { root, stdout, stderr, environment: {}, stop: NEVER }
    const machine = { isRoot: true, addresses: [OWN], clock }
    process.exitCode = 0
    try {
      await setup(context, { ...answers, ...more }, { ...run, json: true }, machine)
      const view = JSON.parse(String(stdout.read()))
      return { ...view, code: process.exitCode, text: String(stderr.read()) }
    } finally {
      process.exitCode = 0
    }
  }
  const start = async () => {
    const data = { STATE_DIRECTORY: join(root, 'var/lib/device-gateway'), LOG_LEVEL: 'warn' }
    const program = new Program({ args: ['gateway', '--json'], env: { ...settings(), ...data } })
    onTestFinished(() => program.end().then(() => undefined))
    await program.ready()
    return program
  }
  return { root, envPath, answers, run, start, settings }
}

interface DomainView {
  readonly id: string
  readonly domain: string
  readonly certificate_management_policy: { readonly authority: string } | null
}

const ZONE_DOMAIN = '*.tunnels.example.com'
const ZONE: DnsZone = {
  'gw.example.com': { A: [OWN] },
  '*.tunnels.example.com': 'gw.example.com',
}

describe('gateway setup', () => {
  it('writes the settings, and changes nothing when it runs again', async () => {
    const { run, start, envPath, settings } = await server(ZONE)
    const first = await run()
    expect(first).toMatchObject({ state: 'left', code: 3 })
    expect(first.left).toEqual([
      expect.stringMatching(/does not serve yet.*Start it as shown above/),
    ])
    expect(first.text).toContain('set -a; . /etc/device-gateway/gateway.env')
    expect(readFileSync(envPath, 'utf8')).toMatch(/^# mine\nGATEWAY_API_LISTEN=/)
    expect(statSync(envPath).mode & 0o777).toBe(0o600)
    expect(settings()).toMatchObject({ GATEWAY_PUBLIC_NAMES: 'gw.example.com' })
    await start()
    const before = readFileSync(envPath, 'utf8')
    const second = await run()
    expect(second).toMatchObject({ state: 'done', code: 0, settings: {}, records: [], left: [] })
    expect(second.text).toContain('Nothing changed')
    expect(second.text).not.toContain('with your supervisor')
    expect(second.text).toContain('sudo device-agent gateway invite')
    expect(readFileSync(envPath, 'utf8')).toBe(before)
  })

  it('asks for a restart when the settings are newer than the gateway', async () => {
    const { run, start, envPath } = await server(ZONE)
    await run()
    const old = await start()
    expect(await run()).toMatchObject({ state: 'done' })
    // The API tells whole seconds.
    const second = () => Math.floor(Date.now() / 1_000)
    const before = second()
    await eventually(() => expect(second()).toBeGreaterThan(before))
    appendFileSync(envPath, 'GATEWAY_IDLE_SECONDS=77\n')
    const outdated = await run()
    expect(outdated.left).toEqual([
      expect.stringMatching(/still has its earlier settings.*Restart it as shown above/),
    ])
    expect(outdated.text).toContain('needs a restart')
    expect(outdated.text).not.toContain('up to date')
    await old.end()
    await start()
    expect(await run()).toMatchObject({ state: 'done', settings: {} })
  })

  it("keeps the gateway's own CA that the owner has chosen, until certificates are asked for", async () => {
    const here = '127.0.0.77'
    const zone = { ...ZONE, 'gw.example.com': { A: [here] } }
    const acme = await AcmeServer.start({ records: '', challenges: () => '', now: Date.now })
    acme.refusal = 'not today'
    const asked = { acmeDirectory: acme.directoryUrl, addresses: [here] }
    const { run, start, root, settings } = await server(zone)
    await run({}, asked)
    await start()
    const { config } = planSettings(settingsPlace({ root }), {
      ...{ domain: ZONE_DOMAIN, name: 'gw.example.com', addresses: [] },
    })
    const url = `http://${settings().GATEWAY_API_LISTEN}`
    const apiKey = readFileSync(apiKeyPath(config), 'utf8').trim()
    const headers = { authorization: `Bearer ${apiKey}`, 'ngrok-version': '2' }
    const domains = async () => {
      const answer = await fetch(`${url}/reserved_domains`, { headers })
      const { reserved_domains: all } = (await answer.json()) as { reserved_domains: DomainView[] }
      return all
    }
    const authority = async () =>
      (await domains()).find(({ domain }) => domain === ZONE_DOMAIN)?.certificate_management_policy
        ?.authority
    await run({}, asked)
    expect(await authority()).toBe('letsencrypt')
    const [wildcard] = (await domains()).filter(({ domain }) => domain === ZONE_DOMAIN)
    const path = `${url}/reserved_domains/${wildcard?.id}/certificate_management_policy`
    expect((await fetch(path, { method: 'DELETE', headers })).status).toBe(204)
    expect(await authority()).toBe('gateway')
    expect(await run({}, { addresses: [here] })).toMatchObject({ state: 'done' })
    expect(await authority()).toBe('gateway')
    await run({}, asked)
    expect(await authority()).toBe('letsencrypt')
  })

  it('shows at a dry run what it would do, and writes nothing', async () => {
    const { run, envPath } = await server({})
    const before = readFileSync(envPath, 'utf8')
    const { text, state, code, records, settings } = await run({ dryRun: true })
    expect({ state, code }).toEqual({ state: 'dry-run', code: 0 })
    expect(text).toContain('would update /etc/device-gateway/gateway.env (600)')
    expect(settings).toMatchObject({ GATEWAY_RESERVED_DOMAIN: '*.tunnels.example.com' })
    expect(records).toHaveLength(2)
    expect(readFileSync(envPath, 'utf8')).toBe(before)
  })

  it('ends a dry run with 1 when a check fails', async () => {
    const { run, answers } = await server(ZONE)
    const taken = createServer().listen(answers.httpPort, '0.0.0.0')
    await once(taken, 'listening')
    onTestFinished(() => void taken.close())
    expect(await run({ dryRun: true })).toMatchObject({ state: 'dry-run', code: 1 })
  })

  it('says without DNS that devices can join by an address, which is in the invitation', async () => {
    const { run, start } = await server({})
    await run({}, { addresses: [OWN] })
    await start()
    const { left } = await run({}, { addresses: [OWN] })
    expect(left).toEqual([
      expect.stringMatching(
        `Devices can join by its address ${OWN} now\\. Visitors need the name\\.$`,
      ),
    ])
  })

  it('names the exact records while DNS is not ready, and serves with its own CA', async () => {
    const zone: Record<string, DnsZone[string]> = {}
    const { run, start } = await server(zone)
    await run()
    await start()
    const { records, state, left, findings, text } = await run()
    expect(state).toBe('left')
    expect(left).toEqual([
      expect.stringMatching(/^Add the DNS records above.* as soon as its name is there\.$/),
    ])
    expect(records).toEqual([
      { name: 'gw.example.com', type: 'A', value: OWN },
      { name: '*.tunnels.example.com', type: 'CNAME', value: 'gw.example.com' },
    ])
    expect(text).toMatch(/ {2}\*\.tunnels\.example\.com\. {2}CNAME {2}gw\.example\.com\.\n/)
    expect(findings).toContainEqual(expect.objectContaining({ check: 'https', outcome: 'good' }))
  })

  it('leads the wildcard of a cluster to the name of all gateways', async () => {
    const { run } = await server({})
    const { records, text } = await run(
      { dryRun: true },
      {
        name: 'gw2.example.com',
        database: 'postgres://gateway@db.lan/site',
        peerListen: '10.0.0.2:4444',
        cnameBase: 'gw.example.com',
      },
    )
    expect(records).toEqual([
      { name: 'gw2.example.com', type: 'A', value: OWN },
      { name: '*.tunnels.example.com', type: 'CNAME', value: 'gw.example.com' },
    ])
    expect(text).toContain('Add these records at the DNS provider, and keep those of the other')
  })

  it('shows the given address where the server has no public one', async () => {
    const names = new NameCheck({
      dnsServers: [await startDnsServer({})],
      machineAddresses: ['10.0.0.1', '192.168.7.1'],
      publicAddresses: ['10.0.0.1'],
      isCluster: false,
    })
    const { records } = await names.publicName('gw.example.com')
    expect(records).toEqual([{ name: 'gw.example.com', type: 'A', value: '10.0.0.1' }])
  })

  it('reports a name that leads to another machine', async () => {
    const zone = { ...ZONE, 'gw.example.com': { A: [OWN], AAAA: ['2001:db8::1'] } }
    const { run, start } = await server(zone)
    await run()
    await start()
    const { findings, state, code } = await run()
    expect({ state, code }).toEqual({ state: 'left', code: 3 })
    expect(findings).toContainEqual({
      ...{ check: 'dns gw.example.com', outcome: 'bad' },
      detail: expect.stringMatching(/2001:db8:\S+ is not an address of this server$/),
      remedy: expect.stringContaining('--address 2001:db8:'),
    })
  })

  it('takes an address of NAT by --address, and one where this gateway answers', async () => {
    // Leads to this machine, although no interface has it.
    const zone = { ...ZONE, 'gw.example.com': { A: ['127.0.0.77'] } }
    const { run, start, settings } = await server(zone)
    const before = await run()
    expect(before.findings).toContainEqual(
      expect.objectContaining({ check: 'dns gw.example.com', outcome: 'bad' }),
    )
    await start()
    expect(await run()).toMatchObject({ state: 'done', records: [] })
    await run({}, { addresses: ['203.0.113.9'] })
    expect(settings()).toMatchObject({ GATEWAY_PUBLIC_NAMES: 'gw.example.com,203.0.113.9' })
  })

  it('waits for DNS with --wait, and ends when the records are there', async () => {
    const zone: Record<string, DnsZone[string]> = {}
    const { run, start } = await server(zone)
    await run()
    await start()
    const clock = new ManualClock(Date.now())
    const waiting = run({ wait: true }, {}, clock)
    await eventually(() => expect(clock.sleeping).toBe(1))
    Object.assign(zone, ZONE)
    await clock.advance(10_000)
    expect(await waiting).toMatchObject({ state: 'done', code: 0, records: [] })
  })

  it('refuses a port of another program, and names that program', async () => {
    const { run, answers, envPath } = await server(ZONE)
    const other = createServer().listen(answers.httpsPort, '0.0.0.0')
    onTestFinished(() => void other.close())
    const before = readFileSync(envPath, 'utf8')
    const { findings, state, code, failures } = await run()
    expect({ state, code }).toEqual({ state: 'failed', code: 1 })
    expect(failures).toEqual(['Nothing was written.'])
    expect(findings).toContainEqual({
      ...{ check: `port ${answers.httpsPort}`, outcome: 'bad' },
      detail: expect.stringContaining(`(process ${process.pid})`),
      remedy: expect.stringMatching(/^Stop \S+, or choose another port with --https-port\.$/),
    })
    expect(readFileSync(envPath, 'utf8')).toBe(before)
  })

  it.each([
    [120_000, '2 min ahead of'],
    [-86_400_000, '24 h behind'],
  ])('refuses a clock that is %d ms off', async (offMs, flaw) => {
    const acme = await AcmeServer.start({ records: '', challenges: () => '', now: Date.now })
    const { root, answers, envPath } = await server(ZONE)
    const before = readFileSync(envPath, 'utf8')
    const stderr = new PassThrough()
    const context = { root, stdout: stderr, stderr, environment: {}, stop: NEVER }
    const machine = { isRoot: true, addresses: [OWN], clock: new ManualClock(Date.now() + offMs) }
    const given = { ...answers, acmeDirectory: acme.directoryUrl }
    await setup(context, given, {}, machine)
    process.exitCode = 0
    const text = String(stderr.read())
    expect(text).toContain(`clock: ${flaw}`)
    expect(text).toContain('sudo timedatectl set-ntp true')
    expect(readFileSync(envPath, 'utf8')).toBe(before)
  })

  it('refuses other users than root, but shows them a dry run', async () => {
    const { root, answers, envPath } = await server(ZONE)
    const before = readFileSync(envPath, 'utf8')
    const stdout = new PassThrough()
    const context = { root, stdout, stderr: stdout, environment: {}, stop: NEVER }
    const machine = { isRoot: false, addresses: [OWN], clock: systemClock }
    await expect(setup(context, answers, {}, machine)).rejects.toThrow(/Only root.*with sudo/)
    await setup(context, answers, { dryRun: true }, machine)
    expect(String(stdout.read())).toContain('Dry run: nothing was written.')
    expect(readFileSync(envPath, 'utf8')).toBe(before)
  })

  it('refuses a database beside the records of a single gateway', async () => {
    const { run, root, envPath } = await server(ZONE)
    const data = join(root, 'var/lib/device-gateway/gateway')
    mkdirSync(data, { recursive: true })
    writeFileSync(join(data, 'gateway.db'), '')
    const database = 'postgres://gw@db.example.com/site'
    const cluster = { database, peerListen: '10.0.0.1:4444', cnameBase: 'site.example.com' }
    await expect(run({}, cluster)).rejects.toThrow(/device-agent gateway migrate/)
    expect(readFileSync(envPath, 'utf8')).not.toContain('DATABASE')
  })

  it('says that an authority does not answer', async () => {
    const closed = createHttpServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => closed.once('listening', resolve))
    const { port } = closed.address() as AddressInfo
    await new Promise((resolve) => closed.close(resolve))
    const { run } = await server(ZONE)
    const acmeDirectory = `http://127.0.0.1:${port}/directory`
    const { findings, state } = await run({}, { acmeDirectory })
    expect(state).toBe('failed')
    expect(findings).toContainEqual(
      expect.objectContaining({ check: 'ACME authority', outcome: 'bad' }),
    )
  })

  it('writes nothing when the owner says no', async () => {
    const { run, envPath } = await server(ZONE)
    const before = readFileSync(envPath, 'utf8')
    expect(await run({ confirm: async () => false })).toMatchObject({
      failures: ['Nothing was written.'],
    })
    expect(readFileSync(envPath, 'utf8')).toBe(before)
    expect(existsSync(`${envPath}.tmp`)).toBe(false)
  })
})

describe('options of a gateway setup', () => {
  it.each(['postgres://gw:hidden#1@db/site', 'mysql://gw:hidden@db/site'])(
    'refuse a database URL without repeating its password: %s',
    async (url) => {
      const stdout = new PassThrough()
      const context = { root: temporaryFolder(), stdout, stderr: stdout, environment: {} }
      const program = createProgram({ ...context, stop: NEVER })
      const args = ['gateway', 'setup', '--name', 'gw.example.com', '--domain', 'a.example.com']
      const error = await program
        .parseAsync([...args, '--database', url, '--dry-run'], { from: 'user' })
        .catch((error: unknown) => error)
      exitCodeOf(error, stdout, { isJournal: false })
      const text = String(stdout.read())
      expect(text).toMatch(/--database must be postgres:\/\//)
      expect(text).not.toContain('hidden')
    },
  )
})

describe('questions of a gateway setup', () => {
  const asked = (lines: readonly string[]) => {
    const left = [...lines]
    return async () => left.shift() ?? expect.fail('asked too often')
  }

  it('ask again until an answer is valid', async () => {
    const lines = ['gw', 'gw.example.com', '*', 'tunnels.example.com', 'nobody', 'me@example.com']
    expect(await completeAnswers({}, {}, asked(lines))).toEqual({
      ...{ name: 'gw.example.com', domain: '*.tunnels.example.com' },
      ...{ addresses: [], email: 'me@example.com' },
    })
  })

  it('are only about what is not known', async () => {
    const before = {
      GATEWAY_PUBLIC_NAMES: '203.0.113.7, gw.example.com',
      GATEWAY_RESERVED_DOMAIN: '*.tunnels.example.com',
      GATEWAY_ACME_DIRECTORY: 'https://acme.example.com/directory',
    }
    const known = { name: 'gw.example.com', domain: '*.tunnels.example.com', addresses: [] }
    expect(await completeAnswers({}, before, asked([]))).toEqual({ ...known, email: undefined })
    expect(await completeAnswers({}, {}, undefined)).toBeUndefined()
  })
})
