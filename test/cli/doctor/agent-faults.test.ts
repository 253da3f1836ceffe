import { spawn, spawnSync } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { Closer } from '../../../src/base/closer.ts'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { LogTail } from '../../../src/base/logger.ts'
import { examineDevice } from '../../../src/cli/doctor/examination.ts'
import type { Finding } from '../../../src/cli/doctor/finding.ts'
import { startSupervisedDaemon } from '../../../src/cli/supervised-daemon.ts'
import { readVersion } from '../../../src/cli/version.ts'
import { parseConfig } from '../../../src/config.ts'
import type { GatewayOptions } from '../../../src/gateway/gateway.ts'
import { serve } from '../../chaos/faulty-services.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { startDnsServer } from '../../helpers/dns-server.ts'
import { eventually } from '../../helpers/eventually.ts'
import { findFaketime } from '../../helpers/faketime.ts'
import type { DeviceSettings } from '../../helpers/fault-table.ts'
import { GatewayProgram } from '../../helpers/gateway-program.ts'
import { FREE_PORTS, MAIN, Program, runProgram } from '../../helpers/program.ts'
import { startGateway } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { createAuthority } from '../../helpers/tls-fixture.ts'

/** Time for the right sentence in the status. */
const TOLD_WITHIN_MS = 30_000

/** A device whose agent may not run. */
interface Device {
  readonly folder: string
  readonly settings: Record<string, string | undefined>
  /** A file with the CA certificate of the gateway. */
  readonly caPath: string
}

async function newDevice(options: Partial<GatewayOptions> = {}): Promise<Device> {
  const { gateway, addresses } = await startGateway(options)
  // Names below localhost lead to this machine without DNS.
  const { authtoken } = await gateway.provision({ domain: '*.site.localhost', name: 'local' })
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'authtoken'), authtoken.reveal(), { mode: 0o600 })
  writeFileSync(join(folder, 'default-policy.json'), '{}')
  const settings = {
    AGENT_DATA_DIR: folder,
    AGENT_DEFAULT_POLICY: join(folder, 'default-policy.json'),
    AGENT_LISTEN: FREE_PORTS.AGENT_LISTEN,
    SVC_AUTHTOKEN_FILE: join(folder, 'authtoken'),
    SVC_CA_CERT: addresses.caCertPath,
    SVC_SERVER_ADDR: `localhost:${addresses.agent.port}`,
    SVC_INGRESS_ADDR: formatListenAddress(addresses.https),
  }
  return { folder, settings, caPath: addresses.caCertPath }
}

/** Starts the agent in this process. Throws what it says when it cannot start. */
async function start({ settings }: Device): Promise<void> {
  const { log } = captureLog()
  const { agent: config } = parseConfig(settings)
  const closer = new Closer(log)
  const stopping = new AbortController()
  onTestFinished(async () => {
    stopping.abort('the test has finished')
    await closer.close()
  })
  const { signal: stop } = stopping
  const logTail = new LogTail()
  const version = readVersion()
  const options = { config, version, environment: {}, log, logTail, stop }
  await startSupervisedDaemon(options, closer).catch(async (error) => {
    await closer.close()
    throw error
  })
}

/** What `status` says where no agent answers, and all findings of `doctor`. */
async function told({ settings }: Device): Promise<{ status: string; findings: Finding[] }> {
  const { signal: stop } = new AbortController()
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const { seen, findings } = await examineDevice(
    { environment: settings, stdout, stderr, stop },
    undefined,
  )
  const all: Finding[] = []
  for await (const some of findings) all.push(...some)
  return { status: seen instanceof StartError ? seen.message : seen.status.verdict, findings: all }
}

/** Settings in place of those of a device, for its agent and its commands. */
type Environment = Readonly<Record<string, string>>

/** What starts the program, such as `unshare` with its arguments. */
type Starter = readonly string[]
const startedBy = (starter: Starter): [string, ...string[]] => {
  const [file = '', ...rest] = [...starter, process.execPath, MAIN]
  return [file, ...rest]
}

/** Runs the agent in a process of its own until the returned function is called. */
async function run(
  { settings }: Device,
  env: Environment = {},
  starter: Starter = [],
): Promise<() => Promise<unknown>> {
  const program = new Program({
    command: startedBy(starter),
    args: ['run', '--json'],
    env: { ...defined(settings), LOG_LEVEL: 'silent', ...env },
  })
  onTestFinished(() => program.end().then(() => undefined))
  await program.ready()
  return () => program.end()
}

/** The first check that fails in `doctor`, as a command of its own. */
async function firstFailure(
  { settings }: Device,
  env: Environment = {},
  starter: Starter = [],
): Promise<Finding | undefined> {
  const ended = await runProgram({
    command: startedBy(starter),
    args: ['doctor', '--json'],
    env: { ...defined(settings), ...env },
  })
  const lines = ended.stdout.trim().split('\n')
  return lines.map((line): Finding => JSON.parse(line)).find(({ outcome }) => outcome === 'bad')
}

const defined = (settings: DeviceSettings): Environment =>
  Object.fromEntries(
    Object.entries(settings).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )

interface StartFault {
  readonly cause: (device: Device) => unknown
  /** What the start says; undefined: nothing is started. */
  readonly refusal?: RegExp
  readonly check: string
  readonly detail: RegExp
  readonly remedy: RegExp
  readonly mend?: (device: Device) => unknown
}

const set = (change: DeviceSettings) => (device: Device) => {
  Object.assign(device.settings, change)
}
const setCa = (name: string, text?: string) => (device: Device) => {
  const path = join(device.folder, name)
  if (text !== undefined) writeFileSync(path, text)
  device.settings.SVC_CA_CERT = path
}
/** Copies ca.pem to the path of the setting. */
const copyCa = ({ caPath, settings }: Device) => copyFileSync(caPath, settings.SVC_CA_CERT ?? '')
const rightAddress = async (device: Device) => {
  const { settings } = await newDevice()
  Object.assign(device.settings, settings)
}
const FORM = /SVC_SERVER_ADDR must be host:port/
const NOT_RUNNING =
  /^No agent is running: there is no socket at .* Start it \(device-agent run or device-agent up, in its folder\)/
const FIX_SETTINGS = /^Fix the settings in environment, then restart the agent\.$/
const COPY_CA = /^Copy ca\.pem of the gateway to this path/

/** A socket in the folder whose process was killed. */
async function staleSocket({ folder }: Device): Promise<void> {
  const path = join(folder, 'local.sock')
  const program = `require('net').createServer().listen(${JSON.stringify(path)}, () => console.log('ready'))`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  await once(child, 'exit')
}

/** A port of this process, which answers no HTTP. */
function taken(): Promise<number> {
  return serve((socket) => socket.end('hello'))
}

const START_FAULTS: Record<string, StartFault> = {
  'was not started': {
    cause: () => {},
    check: 'agent',
    detail: NOT_RUNNING,
    remedy:
      /^Start the agent: device-agent run or .*, in its folder\. If it stops again, read its output/,
  },
  'was killed': {
    cause: staleSocket,
    check: 'agent',
    detail: /^The agent is not running \(stale socket\)\. Start it \(device-agent run or/,
    remedy: /^Start the agent: device-agent run or device-agent up/,
  },
  'cannot find the CA certificate': {
    cause: setCa('ca.pem'),
    refusal:
      /^Cannot use SVC_CA_CERT .*: the file is missing\. Copy ca\.pem of the gateway to this/,
    check: 'CA certificate',
    detail: /ca\.pem: the file is missing$/,
    remedy: COPY_CA,
    mend: copyCa,
  },
  'cannot use the CA certificate': {
    cause: setCa('ca.pem', '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'),
    refusal: /^Cannot use SVC_CA_CERT .*: it contains no certificate\. Copy ca\.pem/,
    check: 'CA certificate',
    detail: /ca\.pem contains no certificate$/,
    remedy: COPY_CA,
    mend: copyCa,
  },
  'has a CA certificate that the gateway made while its clock was ahead': {
    cause: async (device) => {
      const inDays = (days: number) => new Date(Date.now() + days * 86_400_000)
      const { caPem } = await createAuthority({ notBefore: inDays(1), notAfter: inDays(2) })
      setCa('early.pem', caPem)(device)
    },
    check: 'CA certificate',
    detail: /early\.pem is not valid before 20\d\d-\d\d-\d\d$/,
    remedy: /^Check the clock of this device\. If it is right, the gateway made this CA/,
    mend: copyCa,
  },
  'listens at the address of another program': {
    cause: async (device) => {
      device.settings.AGENT_LISTEN = `127.0.0.1:${await taken()}`
    },
    refusal: /^The agent API cannot listen on \S+: the address is already in use; set AGENT_LISTEN/,
    check: 'listen address',
    detail: /^127\.0\.0\.1:\d+ is used by node \(process \d+\), so the agent cannot start$/,
    remedy: /^Stop that program, or set AGENT_LISTEN to another address\. Then start the agent\.$/,
    mend: set(FREE_PORTS),
  },
  'has an address with a scheme': {
    cause: set({ SVC_SERVER_ADDR: 'https://gateway.example.com:4443' }),
    refusal: FORM,
    check: 'settings',
    detail: FORM,
    remedy: FIX_SETTINGS,
    mend: rightAddress,
  },
  'has an address without a port': {
    cause: set({ SVC_SERVER_ADDR: 'gateway.example.com' }),
    refusal: FORM,
    check: 'settings',
    detail: FORM,
    remedy: FIX_SETTINGS,
    mend: rightAddress,
  },
  'has an IPv6 address': {
    cause: set({ SVC_SERVER_ADDR: '[2001:db8::7]:4443' }),
    refusal: /IPv6/,
    check: 'settings',
    detail: /SVC_SERVER_ADDR .*IPv6.*name/,
    remedy: FIX_SETTINGS,
    mend: rightAddress,
  },
}

describe('an agent that', () => {
  it.each(Object.entries(START_FAULTS))('%s', async (_, fault) => {
    const device = await newDevice()
    await fault.cause(device)
    if (fault.refusal) await expect(start(device)).rejects.toThrow(fault.refusal)
    const { status, findings } = await told(device)
    expect(status).toMatch(/Start it \(device-agent run or /)
    expect(findings.find(({ outcome }) => outcome === 'bad')).toEqual({
      check: fault.check,
      outcome: 'bad',
      detail: expect.stringMatching(fault.detail),
      remedy: expect.stringMatching(fault.remedy),
    })
    await fault.mend?.(device)
    // Each remedy ends with a start.
    await start(device)
    await eventually(async () => {
      const after = await told(device)
      expect(after.status).toBe('No tunnels.')
      expect(after.findings.filter(({ outcome }) => outcome === 'bad')).toEqual([])
    })
  })
})

it('an agent of another folder has the listen address, and is not blamed', async () => {
  const other = await newDevice()
  other.settings.AGENT_LISTEN = formatListenAddress(lastingAddress())
  await start(other)
  const device = await newDevice()
  device.settings.AGENT_LISTEN = other.settings.AGENT_LISTEN
  const { findings } = await told(device)
  const failed = findings.filter(({ outcome }) => outcome === 'bad')
  expect(failed.map(({ check }) => check)).toEqual(['agent'])
})

/** A systemctl that shows these properties, and makes a service active when it is started. */
function systemctlShows(properties: Shown, ofGateway: Shown = {}, ofSocket: Shown = {}): void {
  const folder = temporaryFolder()
  const shown = join(folder, 'shown')
  const lines = (of: Shown) => Object.entries(of).map(([name, value]) => `${name}=${value}\n`)
  writeFileSync(shown, lines(properties).join(''))
  writeFileSync(join(folder, 'gateway'), lines(ofGateway).join(''))
  writeFileSync(join(folder, 'socket'), lines(ofSocket).join(''))
  const program = `#!/bin/sh
case "$1 $2" in
  'show device-agent') cat ${shown};;
  'show device-gateway') cat ${folder}/gateway;;
  'show device-gateway.socket') cat ${folder}/socket;;
  'start device-agent' | 'restart device-agent' | 'enable --now') echo LoadState=loaded > ${shown}; echo ActiveState=active >> ${shown};;
  'unmask device-agent') ;;
  *) echo "unexpected: $*" >&2; exit 1;;
esac
`
  writeFileSync(join(folder, 'systemctl'), program, { mode: 0o755 })
  vi.stubEnv('PATH', `${folder}:${process.env.PATH}`)
  onTestFinished(() => void vi.unstubAllEnvs())
}

type Shown = Readonly<Record<string, string>>
const LOADED = { LoadState: 'loaded', ActiveState: 'inactive', SubState: 'dead' }
const DISABLED = { ...LOADED, UnitFileState: 'disabled' }
const ENABLED = { ...LOADED, UnitFileState: 'enabled' }

/** Prints `status` and `doctor` of a machine without an agent. */
async function programSays() {
  const env = { PATH: process.env.PATH ?? '', AGENT_DATA_DIR: temporaryFolder() }
  return Promise.all(
    ['status', 'doctor'].map(async (command) => {
      const { code, stdout, stderr } = await runProgram({ args: [command], env })
      return { code, text: stdout + stderr }
    }),
  )
}

describe('a machine with a gateway and no agent', () => {
  const ONLY = 'This machine runs a gateway and no agent.'
  const ACTIVE = { ActiveState: 'active', SubState: 'running' }

  it.each([
    ['without the package of the agent', { LoadState: 'not-found', ActiveState: 'inactive' }],
    ['with a disabled agent', DISABLED],
  ])('%s is told how to see the gateway', async (_, agent) => {
    systemctlShows(agent, { ...ENABLED, ...ACTIVE })
    for (const { code, text } of await programSays()) {
      expect([code, text]).toEqual([0, expect.stringContaining(ONLY)])
      expect(text).toContain('To see the gateway, run device-agent service status --gateway.')
      expect(text).not.toMatch(/join|connect\.ngrok|✗/)
    }
  })

  it.each([
    ['stopped', ENABLED, ENABLED, 'start'],
    ['disabled without its socket', DISABLED, ENABLED, 'enable --now'],
  ])('is told the command for a gateway that is %s', async (_, gateway, socket, verb) => {
    systemctlShows(DISABLED, gateway, socket)
    for (const { code, text } of await programSays()) {
      expect([code, text]).toEqual([1, expect.stringContaining(ONLY)])
      expect(text).toContain(`Run systemctl ${verb} device-gateway.socket device-gateway.`)
    }
  })

  it.each([
    ['which is enabled', ENABLED, { ...ENABLED, ...ACTIVE }],
    ['whose package brings the unit of a gateway', DISABLED, DISABLED],
  ])('is not a machine with an agent %s', async (_, agent, gateway) => {
    systemctlShows(agent, gateway, DISABLED)
    for (const { code, text } of await programSays()) {
      expect([code, text]).toEqual([1, expect.stringContaining('No agent is running')])
      expect(text).not.toContain(ONLY)
    }
  })
})

describe('an installed service that', () => {
  it.each([
    ['is disabled', DISABLED, /is disabled, so it does not start/],
    ['is stopped', ENABLED, /is stopped/],
    ['is masked', { ...LOADED, LoadState: 'masked' }, /is masked/],
    [
      'has failed',
      { ...LOADED, ActiveState: 'failed', Result: 'exit-code' },
      /has failed \(exit-code\)/,
    ],
    [
      'ends after each start',
      { ...LOADED, ActiveState: 'activating', SubState: 'auto-restart' },
      /stops again and again/,
    ],
    [
      'starts for the sixth time',
      { ...LOADED, ActiveState: 'activating', SubState: 'start', NRestarts: '5' },
      /stops again and again/,
    ],
  ])('%s', async (_, properties, sentence) => {
    systemctlShows(properties)
    const device = await newDevice()
    const { status, findings } = await told(device)
    const failed = findings.find(({ outcome }) => outcome === 'bad')
    expect(failed).toMatchObject({ check: 'agent', detail: expect.stringMatching(sentence) })
    expect(status).toBe(`${failed?.detail} ${failed?.remedy}`)
    const commands = failed?.remedy?.match(/systemctl (?:[^\s.,]+ ?)+/g) ?? []
    expect(commands).not.toEqual([])
    for (const command of commands) {
      const { status: code, stderr } = spawnSync('sh', ['-c', command], { encoding: 'utf8' })
      expect([code, stderr]).toEqual([0, ''])
    }
    // What systemd does then.
    await start(device)
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
  })
})

const faketime = findFaketime()
const movedBy = (by: string): Environment => ({ LD_PRELOAD: faketime ?? '', FAKETIME: by })
const SET_CLOCK = /^Set the wrong clock, of this device or of the gateway/

const CLOCKS_DIFFER = /The clocks of this device and the gateway differ\.$/
const OWN_DOMAIN = 'agent.site.localhost'

/** The agent learns the public port of the gateway. */
async function runOnce(device: Device): Promise<void> {
  const end = await run(device)
  await eventually(async () => {
    const { findings } = await told(device)
    const own = findings.find(({ check }) => check === `own domain ${OWN_DOMAIN}`)
    expect(own?.outcome).toBe('good')
  })
  await end()
}

describe.runIf(faketime)('a device with a clock that is', () => {
  it.each([
    [
      'ahead',
      '+400d',
      {},
      CLOCKS_DIFFER,
      SET_CLOCK,
      /^clock$/,
      /^(399|400) days ahead of the gateway, whose clock says \d{4}-.* UTC$/,
    ],
    [
      'behind, while the gateway does not tell the time',
      '-400d',
      { SVC_INGRESS_ADDR: undefined },
      CLOCKS_DIFFER,
      SET_CLOCK,
      /^tls /,
      /the device clock says/,
    ],
    [
      'ahead of a gateway that does not tell the time',
      '+400d',
      { SVC_INGRESS_ADDR: undefined },
      /The certificate of localhost:\d+ has expired/,
      /^Check the clocks of the device and the gateway\. If both are right, restart the gateway/,
      /^tls /,
      /the device clock says/,
    ],
    [
      'ahead of a gateway that is asked by the own domain, on the port of the last session',
      '+400d',
      { SVC_INGRESS_ADDR: undefined, AGENT_DOMAIN: OWN_DOMAIN },
      CLOCKS_DIFFER,
      SET_CLOCK,
      /^clock$/,
      /^(399|400) days ahead of the gateway, whose clock says \d{4}-.* UTC$/,
    ],
  ])('%s', async (_, by, change, headline, remedy, check, detail) => {
    const device = await newDevice()
    set(change)(device)
    if (device.settings.AGENT_DOMAIN) await runOnce(device)
    const end = await run(device, movedBy(by))
    await eventually(async () => expect((await told(device)).status).toMatch(headline))
    expect(await firstFailure(device, movedBy(by))).toMatchObject({
      check: expect.stringMatching(check),
      detail: expect.stringMatching(detail),
      remedy: expect.stringMatching(remedy),
    })
    await end()
    await run(device)
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
    expect(await firstFailure(device, {})).toBeUndefined()
  })
})

describe.runIf(faketime)('a device whose clock is set wrong while the link is up', () => {
  it('keeps the link, and tells the difference until the clock is set right', async () => {
    const device = await newDevice()
    const path = join(device.folder, 'faketime')
    const setClock = (by: string) => writeFileSync(path, by)
    const env = {
      LD_PRELOAD: faketime ?? '',
      FAKETIME_TIMESTAMP_FILE: path,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    }
    setClock('+0d')
    await run(device, env)
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
    setClock('+400d')
    await eventually(async () => {
      const { status, findings } = await told(device)
      expect(status).toMatch(
        /^No tunnels\. The device clock is (399|400) days ahead of the gateway\.$/,
      )
      expect(findings.find(({ check }) => check === 'link')?.outcome).toBe('good')
      expect(findings.find(({ outcome }) => outcome === 'bad')).toMatchObject({
        check: 'status',
        remedy: expect.stringMatching(SET_CLOCK),
      })
    }, TOLD_WITHIN_MS)
    expect((await firstFailure(device, env))?.remedy).toMatch(SET_CLOCK)
    setClock('+0d')
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
    expect(await firstFailure(device, env)).toBeUndefined()
  })
})

const canHaveNamespaces = spawnSync('unshare', ['--mount', '--net', 'true']).status === 0
/** Runs the commands of a shell, then the program. */
const after = (commands: string) => ['sh', '-c', `${commands} && exec "$@"`, 'sh']

describe.runIf(canHaveNamespaces)('a device', () => {
  it('whose DNS server does not answer', async () => {
    const name = 'gateway.example.com'
    const device = await newDevice({ publicNames: [{ host: name, port: undefined }] })
    const address = device.settings.SVC_SERVER_ADDR ?? ''
    device.settings.SVC_SERVER_ADDR = address.replace('localhost', name)
    let isSilent = true
    const host = `127.${[0, 0, 0].map(() => randomInt(1, 255)).join('.')}`
    await startDnsServer(
      { [name]: '127.0.0.1' },
      { listen: { host, port: 53 }, isSilent: () => isSilent },
    )
    const path = join(device.folder, 'resolv.conf')
    writeFileSync(path, `nameserver ${host}\noptions timeout:2\n`)
    const starter = ['unshare', '--mount', ...after(`mount --bind ${path} /etc/resolv.conf`)]
    await run(device, {}, starter)
    await eventually(async () => {
      expect((await told(device)).status).toBe(
        `No tunnels. ${name} cannot be resolved: DNS does not answer.`,
      )
    }, TOLD_WITHIN_MS)
    expect(await firstFailure(device, {}, starter)).toMatchObject({
      check: expect.stringMatching(/^dns gateway\.example\.com:/),
      remedy: 'Check that the device has a network, and that its DNS server answers.',
    })
    isSilent = false
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
    expect(await firstFailure(device, {}, starter)).toBeUndefined()
  })

  it.each([
    [
      'without a route to the gateway',
      'ip link set lo up',
      /is unreachable: the device has no route/,
    ],
    [
      'whose router knows no way to the gateway',
      'ip link set lo up && ip route add unreachable 192.0.2.0/24',
      /is unreachable/,
    ],
  ])('%s', async (_, network, sentence) => {
    const device = await newDevice()
    const right = device.settings.SVC_SERVER_ADDR
    // An address of documentation (RFC 5737). The namespace leads nowhere.
    device.settings.SVC_SERVER_ADDR = '192.0.2.1:4443'
    const starter = ['unshare', '--net', ...after(network)]
    const end = await run(device, {}, starter)
    await eventually(async () => {
      expect((await told(device)).status).toMatch(/^No tunnels\. 192\.0\.2\.1:4443 is unreachable/)
    }, TOLD_WITHIN_MS)
    expect(await firstFailure(device, {}, starter)).toMatchObject({
      check: 'tcp 192.0.2.1:4443',
      detail: expect.stringMatching(sentence),
      remedy: expect.stringMatching(
        /default route \(ip route\), and the address in SVC_SERVER_ADDR/,
      ),
    })
    await end()
    device.settings.SVC_SERVER_ADDR = right
    await run(device)
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
    expect(await firstFailure(device)).toBeUndefined()
  })
})

describe.runIf(faketime)('a gateway with a clock that is', () => {
  it('ahead', async () => {
    const folder = temporaryFolder()
    const agentListen = formatListenAddress(lastingAddress())
    const env = { GATEWAY_AGENT_LISTEN: agentListen }
    // Its CA is from before.
    await (await GatewayProgram.start(folder, env)).program.end()
    const ahead = await GatewayProgram.start(folder, { ...env, ...movedBy('+400d') })
    const { ready } = ahead
    const device = await newDevice()
    Object.assign(device.settings, {
      SVC_AUTHTOKEN_FILE: ready.authtoken_file,
      SVC_CA_CERT: ready.ca_cert,
      SVC_SERVER_ADDR: agentListen.replace('127.0.0.1', 'localhost'),
      SVC_INGRESS_ADDR: undefined,
    })
    await start(device)
    await eventually(async () => {
      const { status, findings } = await told(device)
      expect(status).toBe('No tunnels. The clocks of this device and the gateway differ.')
      expect(findings.find(({ outcome }) => outcome === 'bad')?.remedy).toMatch(SET_CLOCK)
    })
    await ahead.program.end()
    await GatewayProgram.start(folder, env)
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
  })
})

/** Runs a command as another user than that of the agent. */
const AS_NOBODY = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] as const
const canChangeUser = spawnSync(AS_NOBODY[0], [...AS_NOBODY.slice(1), 'true']).status === 0

describe.runIf(canChangeUser)('an agent of another user', () => {
  it('is not asked without sudo', async () => {
    const device = await newDevice()
    await start(device)
    const ask = (command: readonly [string, ...string[]]) =>
      runProgram({
        command: [...command, process.execPath, MAIN],
        args: ['status'],
        env: defined(device.settings),
      })
    const refused = await ask(AS_NOBODY)
    expect(refused.code).toBe(1)
    expect(refused.stderr).toMatch(/Permission denied\. Run this command with sudo/)
    const examined = await runProgram({
      command: [...AS_NOBODY, process.execPath, MAIN],
      args: ['doctor', '--json'],
      env: defined(device.settings),
    })
    const lines = examined.stdout.trim().split('\n')
    const findings = lines.map((line): Finding => JSON.parse(line))
    expect(findings.filter(({ outcome }) => outcome === 'bad')).toMatchObject([
      { check: 'data folder', remedy: expect.stringMatching(/^Run this command with sudo\./) },
      { check: 'authtoken' },
      { check: 'default policy' },
      { check: 'CA certificate' },
      { check: 'agent', remedy: 'Run this command with sudo.' },
    ])
    const answered = await ask(['env'])
    expect(answered.stdout).toMatch(/^● No tunnels\./)
  })

  it('starts for the first time is not called stopped', async () => {
    systemctlShows({ ...LOADED, ActiveState: 'activating', SubState: 'start', NRestarts: '0' })
    const { status } = await told(await newDevice())
    expect(status).toBe(
      'No agent is running: the service device-agent is starting. Try again in a few seconds.',
    )
  })
})
