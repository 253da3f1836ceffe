import { chmodSync, cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { createServer, type Server } from 'node:net'
import { dirname, join } from 'node:path'
import { PassThrough } from 'node:stream'
import { parse } from 'dotenv'
import { describe, expect, it, onTestFinished } from 'vitest'
import { examineDevice } from '../../src/cli/doctor/examination.ts'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram, startRun } from '../helpers/gateway-program.ts'
import { type Ended, FREE_PORTS, MAIN, Program, runProgram } from '../helpers/program.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

interface Finding {
  readonly check: string
  readonly outcome: string
  readonly detail: string
  readonly remedy: string | null
}

type Settings = Record<string, string>

const TOKEN = 'no-authtoken-of-anybody'

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as { port: number }).port
}

const findingsOf = ({ stdout }: Ended): Finding[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))

/** A folder with a good data folder. */
function folderWithData(): string {
  const folder = temporaryFolder()
  mkdirSync(join(folder, 'data'), { mode: 0o700 })
  return folder
}

/** The first cause that the doctor finds in this process: each start of the program takes half a second. */
async function firstCause(inject: (folder: string) => Settings | Promise<Settings>) {
  const folder = folderWithData()
  const environment = {
    ...FREE_PORTS,
    AGENT_DATA_DIR: join(folder, 'data'),
    ...(await wellSettings()),
    ...(await inject(folder)),
  }
  const { signal } = new AbortController()
  const context = {
    environment,
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    stop: signal,
  }
  const { findings } = await examineDevice(context, undefined)
  for await (const some of findings) {
    const first = some.find(({ outcome }) => outcome === 'bad')
    if (first) return first
  }
  return undefined
}

/** What is well but for the agent, which does not run. */
async function wellSettings(): Promise<Settings & { SVC_CA_CERT: string }> {
  const { certPem, keyPem, caPem } = await createTlsFixture()
  const { createServer: createTls } = await import('node:tls')
  const port = await listen(createTls({ cert: certPem, key: keyPem }))
  const ca = join(temporaryFolder(), 'ca.pem')
  writeFileSync(ca, caPem)
  return { SVC_AUTHTOKEN: TOKEN, SVC_SERVER_ADDR: `localhost:${port}`, SVC_CA_CERT: ca }
}

describe('device-agent doctor without an agent', () => {
  it('blames no disk for a data folder that is not made yet', async () => {
    const env = { ...(await wellSettings()), AGENT_DATA_DIR: 'not/made/yet' }
    const ended = await runProgram({ args: ['doctor', '--json'], cwd: temporaryFolder(), env })
    const outcomes = findingsOf(ended).map(({ check, outcome }) => [check, outcome])
    expect(outcomes).toContainEqual(['data folder', 'bad'])
    expect(outcomes).toContainEqual(['disk', 'good'])
  })

  it('names .env for the settings that come from it', async () => {
    const { SVC_AUTHTOKEN = '', ...env } = await wellSettings()
    const cwd = folderWithData()
    writeFileSync(join(cwd, '.env'), `SVC_AUTHTOKEN=${SVC_AUTHTOKEN}\n`)
    const details = async (settings: Settings) => {
      const ended = await runProgram({ args: ['doctor', '--json'], cwd, env: settings })
      const all = findingsOf(ended).map(({ check, detail }) => [check, detail])
      return all.filter(([check]) => check === 'settings' || check === 'authtoken')
    }
    expect(await details(env)).toEqual([
      ['settings', 'from .env and environment'],
      ['authtoken', 'set in .env'],
    ])
    expect(await details({ ...env, SVC_AUTHTOKEN: 'another-one' })).toEqual([
      ['settings', 'from environment'],
      ['authtoken', 'set in the environment'],
    ])
  })

  it('finds nothing but that no agent runs, where all else is well', async () => {
    const ended = await runProgram({
      args: ['doctor', '--json'],
      cwd: folderWithData(),
      env: await wellSettings(),
    })
    const findings = findingsOf(ended)
    expect(findings.find(({ outcome }) => outcome === 'bad')).toMatchObject({
      check: 'agent',
      detail: expect.stringContaining('No agent is running'),
    })
    expect(findings.filter(({ outcome }) => outcome === 'bad')).toHaveLength(1)
    expect(findings.find(({ check }) => check.startsWith('tls '))?.detail).toMatch(
      /^localhost ← test CA(?: \(known from SVC_CA_CERT\))?, \d+ ms in total$/,
    )
    expect(findings.map(({ check }) => check.split(' ', 1)[0])).toEqual([
      ...['settings', 'data', 'disk', 'authtoken', 'default', 'CA', 'dns', 'tcp', 'tls', 'clock'],
      ...['agent', 'link', 'tunnels', 'upstreams', 'update'],
    ])
    expect(ended.code).toBe(1)
    expect(ended.stdout + ended.stderr).not.toContain(TOKEN)
  })

  it('leaves the mode of a mounted authtoken to the container engine', async () => {
    const cause = await firstCause((folder) => {
      writeFileSync(join(folder, 'svc-authtoken'), TOKEN, { mode: 0o644 })
      return { SVC_AUTHTOKEN: '', CREDENTIALS_DIRECTORY: folder }
    })
    expect(cause?.check).toBe('agent')
  })

  const faults: [
    string,
    (folder: string) => Settings | Promise<Settings>,
    Partial<Record<keyof Finding, unknown>>,
  ][] = [
    [
      'a setting that is none',
      () => ({ AGENT_LISTN: ':1' }),
      { check: 'settings', detail: /AGENT_LISTEN/ },
    ],
    [
      'no data folder',
      () => ({ AGENT_DATA_DIR: '/nowhere/data' }),
      { check: 'data folder', detail: /the directory does not exist/ },
    ],
    [
      'a data folder that is open',
      (folder) => {
        chmodSync(join(folder, 'data'), 0o755)
        return {}
      },
      {
        check: 'data folder',
        detail: /other users can access .* \(mode 755\)/,
        remedy: /chmod 700/,
      },
    ],
    [
      'no authtoken',
      () => ({ SVC_AUTHTOKEN: '' }),
      { check: 'authtoken', detail: /no authtoken is set/ },
    ],
    [
      'an authtoken that others read',
      (folder) => {
        writeFileSync(join(folder, 'token'), TOKEN, { mode: 0o644 })
        return { SVC_AUTHTOKEN: '', SVC_AUTHTOKEN_FILE: join(folder, 'token') }
      },
      { check: 'authtoken', detail: /other users can read/ },
    ],
    [
      'a file without an authtoken',
      (folder) => {
        writeFileSync(join(folder, 'token'), 'two words', { mode: 0o600 })
        return { SVC_AUTHTOKEN: '', SVC_AUTHTOKEN_FILE: join(folder, 'token') }
      },
      { check: 'authtoken', detail: /contains no authtoken/ },
    ],
    [
      'a default policy with a mistake',
      (folder) => {
        writeFileSync(
          join(folder, 'p.json'),
          '{"on_http_request": [{"actions": [{"type": "deny", "config": {"status_code": 9}}]}]}',
        )
        return { AGENT_DEFAULT_POLICY: join(folder, 'p.json') }
      },
      { check: 'default policy', detail: /p\.json:1:\d+: .*status_code/ },
    ],
    [
      'a default policy that is gone',
      () => ({ AGENT_DEFAULT_POLICY: '/nowhere.json' }),
      { check: 'default policy', detail: /the file is missing/ },
    ],
    [
      'a CA that is none',
      () => ({ SVC_CA_CERT: '/etc/hostname' }),
      { check: 'CA certificate', detail: /contains no certificate/ },
    ],
    [
      'a CA that is gone',
      () => ({ SVC_CA_CERT: '/nowhere.pem' }),
      { check: 'CA certificate', detail: /the file is missing/ },
    ],
    [
      'a name that nobody knows',
      () => ({ SVC_SERVER_ADDR: 'gateway.invalid:4443' }),
      { check: /^dns / },
    ],
    [
      'a port where nothing listens',
      () => ({ SVC_SERVER_ADDR: 'localhost:1' }),
      { check: /^tcp /, detail: /refuses/ },
    ],
    [
      'a server that says nothing',
      async () => ({ SVC_SERVER_ADDR: `localhost:${await listen(createServer(() => {}))}` }),
      { check: /^t(?:cp|ls) /, detail: /no answer|silent|nothing|within/i },
    ],
    [
      'a server without TLS',
      async () => ({ SVC_SERVER_ADDR: `localhost:${await listen(createHttpServer())}` }),
      { check: /^tls / },
    ],
    [
      'a certificate of another CA',
      async () => ({ SVC_CA_CERT: (await wellSettings()).SVC_CA_CERT }),
      {
        check: /^tls /,
        detail: /; certificate chain: localhost ← test CA/,
        remedy: /SVC_CA_CERT|ca\.pem|certificate/i,
      },
    ],
    [
      'a certificate that has ended',
      async () => {
        const ended = { notBefore: new Date(0), notAfter: new Date(86_400_000) }
        const { certPem, keyPem } = await createTlsFixture(ended)
        const { createServer: createTls } = await import('node:tls')
        const port = await listen(createTls({ cert: certPem, key: keyPem }))
        return { SVC_SERVER_ADDR: `localhost:${port}` }
      },
      { check: /^tls /, detail: /has expired \(on 1970-01-02\)/, remedy: /renew the certificate/ },
    ],
    [
      'a clock that is not that of the service',
      async () => {
        const { certPem, keyPem } = await createTlsFixture()
        const inAnHour = new Date(Date.now() + 3_600_000).toUTCString()
        const server = createHttpsServer({ cert: certPem, key: keyPem }, (_request, response) =>
          response.writeHead(404, { date: inAnHour }).end(),
        )
        return { SVC_INGRESS_ADDR: `127.0.0.1:${await listen(server)}` }
      },
      {
        check: 'clock',
        detail:
          /^(1 h|59 min) behind the gateway, whose clock says \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/,
        remedy:
          /of this device or of the gateway.*sudo timedatectl set-ntp false, then sudo timedatectl set-time/,
      },
    ],
  ]
  if (canMount()) {
    faults.push([
      'a disk that is nearly full',
      () => {
        const { folder } = mountSmallDisk('8m')
        return { AGENT_DATA_DIR: folder }
      },
      { check: 'disk', detail: /^[78] MiB free in \//, remedy: /^Free disk space there\./ },
    ])
  }

  it.each(faults)('names the cause: %s', async (_, inject, expected) => {
    const first = await firstCause(inject)
    for (const [field, pattern] of Object.entries(expected)) {
      const value = first?.[field as keyof Finding]
      if (pattern instanceof RegExp) expect(value).toMatch(pattern)
      else expect(value).toBe(pattern)
    }
    expect(first?.remedy).toMatch(/\S{3}/)
  })
})

describe('device-agent doctor beside an agent', () => {
  it('finds everything well, then the upstream that is down, then the agent', async () => {
    const folder = temporaryFolder()
    const [known, unknown] = [await createTlsFixture(), await createTlsFixture()]
    writeFileSync(join(folder, 'ca.pem'), known.caPem)
    const env = { NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem') }
    const up = new Program({ args: ['up', '--json'], cwd: folder, env })
    onTestFinished(async () => void (await up.end()))
    await up.ready()
    const run = (...args: string[]) => runProgram({ args, cwd: folder, env })
    await eventually(async () => {
      const { code, stdout } = await run('doctor')
      expect(stdout).toContain('All checks passed.')
      expect(code).toBe(0)
    })
    await run('tunnels', 'add', 'cam.site.localhost', '1')
    const ssh = await listen(
      createServer((socket) => socket.on('error', () => {}).end('SSH-2.0-x\r\n')),
    )
    await run('tunnels', 'add', 'ssh.site.localhost', String(ssh))
    const serveTls = ({ certPem: cert, keyPem: key }: typeof known) =>
      listen(createHttpsServer({ cert, key }, (_request, response) => response.end()))
    const [trusted, untrusted] = [await serveTls(known), await serveTls(unknown)]
    const plain = await listen(createHttpServer((_request, response) => response.end()))
    for (const [name, port] of Object.entries({ trusted, untrusted, plain })) {
      await run('tunnels', 'add', `${name}.site.localhost`, `https://localhost:${port}`)
    }
    const insecure = `https://127.0.0.1:${untrusted}`
    await run('tunnels', 'add', 'insecure.site.localhost', insecure, '--no-verify-tls')
    await eventually(async () => {
      const bad = findingsOf(await run('doctor', '--json')).filter((it) => it.outcome === 'bad')
      const found = Object.fromEntries(bad.map(({ check, detail }) => [check, detail]))
      expect(found).toEqual({
        'upstream localhost:1': 'connection refused, nothing is listening',
        [`upstream localhost:${ssh}`]: 'the upstream does not answer with HTTP',
        [`upstream https://localhost:${plain}`]: expect.stringMatching(
          /^the upstream does not use TLS: \S/,
        ),
        [`upstream https://localhost:${untrusted}`]: expect.stringMatching(
          /^its certificate is not trusted: \S/,
        ),
      })
    })
    const good = findingsOf(await run('doctor', '--json')).filter((it) => it.outcome === 'good')
    for (const url of [`https://localhost:${trusted}`, insecure]) {
      const found = good.find(({ check }) => check === `upstream ${url}`)
      expect(found?.detail).toMatch(/^answers 200 after \d+ ms$/)
    }
    expect((await run('doctor')).stdout).toMatch(/\n4 checks failed\. Start with the first\.\n$/)
  })
})

/** A gateway, and devices of it: their settings come from `provision`. */
async function startSite() {
  const folder = temporaryFolder()
  const gateway = await GatewayProgram.start(folder)
  const { management_api, agent_listen } = gateway.ready
  const provision = async (name: string): Promise<Settings> => {
    const { code, stderr } = await runProgram({
      args: ['provision', '--name', name, '--server-addr', agent_listen],
      cwd: folder,
      env: {
        GATEWAY_DATA_DIR: join(folder, 'gateway'),
        GATEWAY_API_LISTEN: new URL(management_api).host,
        GATEWAY_AGENT_LISTEN: agent_listen,
      },
    })
    expect([code, stderr]).toEqual([0, ''])
    return parse(readFileSync(join(folder, `${name}.env`)))
  }
  /** An agent with these settings, and the first thing that its doctor finds. */
  const startDevice = async (settings: Settings) => {
    const env = {
      ...settings,
      AGENT_DATA_DIR: join(temporaryFolder(), 'data'),
      AGENT_API_TOKEN: TOKEN_OF_API,
    }
    const { agentApi } = await startRun(folder, env)
    const put = (...domains: string[]) =>
      fetch(`${agentApi}/tunnels`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${TOKEN_OF_API}`, 'content-type': 'application/json' },
        body: JSON.stringify(
          domains.map((domain) => ({ protocol: 'http', forwards_to: 'localhost:1', domain })),
        ),
      })
    const first = async () => {
      const ended = await runProgram({ args: ['doctor', '--json'], cwd: folder, env })
      return findingsOf(ended).find(({ outcome }) => outcome === 'bad')
    }
    /** What it comes to when the agent has tried. */
    const finds = (expected: Record<string, unknown>) =>
      eventually(async () => expect(await first()).toMatchObject(expected))
    return { put, finds }
  }
  return { provision, startDevice }
}

const TOKEN_OF_API = 'token-of-at-least-20-characters'

describe('device-agent doctor beside a gateway', () => {
  it('names the cause: an authtoken that is none, and an own address that is not its own', async () => {
    const { provision, startDevice } = await startSite()
    const settings = await provision('cam1')
    const { finds } = await startDevice({ ...settings, SVC_AUTHTOKEN: TOKEN })
    await finds({
      check: 'link',
      detail: expect.stringMatching(/^refused: .*authtoken/i),
      remedy: expect.stringMatching(/SVC_AUTHTOKEN|authtoken/),
    })
    const other = await startDevice({ ...settings, AGENT_DOMAIN: 'api.others.example' })
    await other.finds({
      check: 'own domain api.others.example',
      detail: expect.stringMatching(/may not|not allowed|ACL|api\.others\.example/),
      remedy: expect.stringMatching(/\S{3}/),
    })
  })

  it('names the cause: a name that it may not bind, and one that another device has', async () => {
    const { provision, startDevice } = await startSite()
    const { AGENT_DOMAIN: _own, ...settings } = await provision('cam1')
    // Two devices with one authtoken: another one may not bind these names at all.
    const [one, two] = [await startDevice(settings), await startDevice(settings)]
    await one.put('cam.others.example')
    await one.finds({
      check: 'tunnel cam.others.example',
      detail: expect.stringMatching(/^refused: /),
      remedy: expect.stringMatching(/ACL|Reserve the domain/),
    })
    await one.put('door.cam1.site.localhost')
    await two.put('door.cam1.site.localhost')
    await two.finds({
      check: 'tunnel door.cam1.site.localhost',
      detail: expect.stringMatching(/ERR_NGROK_334|already|another/i),
      remedy: expect.stringMatching(/^Close the domain on the other device/),
    })
  })

  it('names the cause: an update that the agent has not seen', async () => {
    const copy = temporaryFolder()
    const root = dirname(dirname(MAIN))
    for (const part of ['dist', 'package.json', 'default-policy.json']) {
      cpSync(join(root, part), join(copy, part), { recursive: true })
    }
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
    const main = join(copy, 'dist/main.js')
    const folder = temporaryFolder()
    const up = new Program({ main, args: ['up', '--json'], cwd: folder })
    onTestFinished(async () => void (await up.end()))
    await up.ready()
    const path = join(copy, 'package.json')
    const manifest = JSON.parse(readFileSync(path, 'utf8'))
    writeFileSync(path, JSON.stringify({ ...manifest, version: '99.0.0' }))
    await eventually(async () => {
      const ended = await runProgram({ main, args: ['doctor', '--json'], cwd: folder })
      expect(findingsOf(ended).filter(({ outcome }) => outcome === 'bad')).toEqual([
        {
          check: 'update',
          outcome: 'bad',
          detail: `99.0.0 is installed, but ${manifest.version} is running`,
          remedy:
            'Restart the agent: stop it, then device-agent run or device-agent up, in its folder.',
        },
      ])
    })
  })
})
