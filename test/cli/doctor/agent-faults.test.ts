import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { Closer } from '../../../src/base/closer.ts'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { LogTail } from '../../../src/base/logger.ts'
import { examineDevice } from '../../../src/cli/doctor/examination.ts'
import type { Finding } from '../../../src/cli/doctor/finding.ts'
import { startSupervisedDaemon } from '../../../src/cli/supervised-daemon.ts'
import { readVersion } from '../../../src/cli/version.ts'
import { parseConfig } from '../../../src/config.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { findFaketime } from '../../helpers/faketime.ts'
import type { DeviceSettings } from '../../helpers/fault-table.ts'
import { GatewayProgram } from '../../helpers/gateway-program.ts'
import { FREE_PORTS, MAIN, Program, runProgram } from '../../helpers/program.ts'
import { startGateway } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { createAuthority } from '../../helpers/tls-fixture.ts'

/** A device whose agent may not run. */
interface Device {
  readonly folder: string
  readonly settings: Record<string, string | undefined>
  /** A file with the CA certificate of the gateway. */
  readonly caPath: string
}

async function newDevice(): Promise<Device> {
  const { addresses, authtoken } = await startGateway()
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

/** Runs the agent in a process of its own until the returned function is called. */
async function run({ settings }: Device, env: Environment = {}): Promise<() => Promise<unknown>> {
  const program = new Program({
    args: ['run', '--json'],
    env: { ...defined(settings), LOG_LEVEL: 'silent', ...env },
  })
  onTestFinished(() => program.end().then(() => undefined))
  await program.ready()
  return () => program.end()
}

/** The first check that fails in `doctor`, as a command of its own. */
async function firstFailure({ settings }: Device, env: Environment): Promise<Finding | undefined> {
  const ended = await runProgram({
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
  /^No agent is running: there is no socket at .* \(systemctl start device-agent\)/
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

const START_FAULTS: Record<string, StartFault> = {
  'was not started': {
    cause: () => {},
    check: 'agent',
    detail: NOT_RUNNING,
    remedy: /^Start the agent: systemctl start device-agent\. If it stops again, check/,
  },
  'was killed': {
    cause: staleSocket,
    check: 'agent',
    detail: /^The agent is not running \(stale socket\)\. Start it/,
    remedy: /^Start the agent: systemctl start device-agent/,
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
    expect(status).toMatch(/systemctl start device-agent/)
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

const faketime = findFaketime()
const movedBy = (by: string): Environment => ({ LD_PRELOAD: faketime ?? '', FAKETIME: by })
const SET_CLOCK = /^Set the wrong clock, of this device or of the gateway/

describe.runIf(faketime)('a device with a clock that is', () => {
  it.each([
    ['ahead', '+400d', true, /The clocks of this device and the gateway differ\.$/, SET_CLOCK],
    ['behind', '-400d', false, /The clocks of this device and the gateway differ\.$/, SET_CLOCK],
    [
      'ahead of a gateway that does not tell the time',
      '+400d',
      false,
      /The certificate of localhost:\d+ has expired/,
      /^Check the clocks of the device and the gateway\. If both are right, restart the gateway/,
    ],
  ])('%s', async (_, by, tellsTime, headline, remedy) => {
    const device = await newDevice()
    if (!tellsTime) delete device.settings.SVC_INGRESS_ADDR
    const end = await run(device, movedBy(by))
    await eventually(async () => expect((await told(device)).status).toMatch(headline))
    expect(await firstFailure(device, movedBy(by))).toMatchObject({
      check: expect.stringMatching(/^tls /),
      detail: expect.stringMatching(/the device clock says/),
      remedy: expect.stringMatching(remedy),
    })
    await end()
    await run(device)
    await eventually(async () => expect((await told(device)).status).toBe('No tunnels.'))
    expect(await firstFailure(device, {})).toBeUndefined()
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
})
