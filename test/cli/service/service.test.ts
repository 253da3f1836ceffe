import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { parse } from 'dotenv'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { formatListenAddress } from '../../../src/base/listen-address.ts'
import { Secret } from '../../../src/base/secret.ts'
import { readHandover, removeDurably } from '../../../src/cli/service/handover-file.ts'
import { serviceCommand, startInstalled } from '../../../src/cli/service/service.ts'
import { applyChanges, planInstall, planUninstall } from '../../../src/cli/service/service-files.ts'
import { parseConfig } from '../../../src/config.ts'
import { parseSettings } from '../../../src/settings/settings.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const UNIT_FOLDER = '../../../systemd'
const UNITS = ['device-agent', 'device-gateway'] as const
const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0

/** The service could not start what is below a home folder, so nothing is installed from there. */
const mayInstall =
  hasSystemd &&
  ![process.execPath, import.meta.dirname].some((path) => /^\/(home|root|run)\//.test(path))

const layout = (root: string) => ({
  root,
  name: 'device-agent' as const,
  node: process.execPath,
  main: '/usr/lib/device-agent/dist/main.js',
  authtoken: new Secret('canary-token'),
})

describe('service install', () => {
  it('puts unit, settings, policy and token in place, each with its mode', () => {
    const root = temporaryFolder()
    applyChanges(root, planInstall(layout(root)))
    const modes = [
      '/etc/systemd/system/device-agent.service',
      '/etc/device-agent/agent.env',
      '/etc/device-agent/default-policy.json',
      '/etc/credstore/svc-authtoken',
    ].map((path) => (statSync(join(root, path)).mode & 0o777).toString(8))
    expect(modes).toEqual(['644', '600', '644', '600'])
    const unit = readFileSync(join(root, '/etc/systemd/system/device-agent.service'), 'utf8')
    expect(unit).toContain(
      `ExecStart=${process.execPath} --disable-proto=delete --max-semi-space-size=2 ` +
        '/usr/lib/device-agent/dist/main.js run\n',
    )
    expect(unit).not.toContain('ExecReload=')
    expect(unit).not.toContain('canary-token')
  })

  it('tells the owner of a gateway nothing of an authtoken', () => {
    const root = temporaryFolder()
    const gateway = { ...layout(root), name: 'device-gateway' as const, authtoken: undefined }
    applyChanges(root, planInstall(gateway))
    const settings = readFileSync(join(root, '/etc/device-gateway/gateway.env'), 'utf8')
    expect(settings).not.toContain('authtoken')
    expect(existsSync(join(root, '/etc/credstore'))).toBe(false)
  })

  it('puts no unit in front of one of the system that says the same', () => {
    const root = temporaryFolder()
    const own = join(root, '/etc/systemd/system/device-agent.service')
    const packaged = join(root, '/usr/lib/systemd/system/device-agent.service')
    applyChanges(root, planInstall(layout(root)))
    mkdirSync(join(packaged, '..'), { recursive: true })
    renameSync(own, packaged)
    applyChanges(root, planInstall(layout(root)))
    expect(existsSync(own)).toBe(false)
    applyChanges(root, planInstall({ ...layout(root), node: '/another/node' }))
    expect(readFileSync(own, 'utf8')).toContain('ExecStart=/another/node ')
  })

  it('lets systemd listen where the settings of a gateway say', () => {
    const root = temporaryFolder()
    const gateway = { ...layout(root), name: 'device-gateway' as const, authtoken: undefined }
    const path = join(root, '/etc/systemd/system/device-gateway.socket')
    const listens = () => readFileSync(path, 'utf8').match(/(?<=^ListenStream=).*/gm)
    applyChanges(root, planInstall(gateway))
    const shipped = readFileSync(join(import.meta.dirname, UNIT_FOLDER, 'device-gateway.socket'))
    expect(readFileSync(path, 'utf8')).toBe(shipped.toString())
    const defaults = parseSettings({})
    expect(listens()).toEqual(
      (['AGENT', 'HTTP', 'HTTPS', 'API'] as const).map((name) =>
        formatListenAddress(defaults[`GATEWAY_${name}_LISTEN`]),
      ),
    )
    writeFileSync(
      join(root, '/etc/device-gateway/gateway.env'),
      '# owner\nGATEWAY_HTTP_LISTEN="[::]:80"\nGATEWAY_API_LISTEN=127.0.0.1:0\n',
    )
    applyChanges(root, planInstall(gateway))
    expect(listens()).toEqual(['127.0.0.1:4443', '[::]:80', '127.0.0.1:8443'])
    expect(planInstall(gateway).map(({ kind }) => kind)).toEqual(['keep', 'keep', 'keep'])
    const settings = { GATEWAY_HTTPS_LISTEN: '0.0.0.0:443' }
    applyChanges(root, planInstall({ ...gateway, settings }))
    expect(listens()).toEqual(['127.0.0.1:4443', '[::]:80', '0.0.0.0:443'])
    applyChanges(root, planUninstall(gateway))
    expect(existsSync(path)).toBe(false)
    expect(existsSync(join(root, '/etc/systemd/system/device-gateway.service'))).toBe(false)
  })

  it('takes over what provision has written, beside what the owner has set', () => {
    const root = temporaryFolder()
    const file = join(temporaryFolder(), 'cam01.env')
    writeFileSync(
      file,
      'AGENT_DOMAIN=cam01.site.test\nSVC_AUTHTOKEN=canary_token_of_the_test_0123456789\nSVC_SERVER_ADDR=gw.test:4443\n',
    )
    const settings = join(root, '/etc/device-agent/agent.env')
    mkdirSync(join(root, '/etc/device-agent'), { recursive: true })
    writeFileSync(settings, '# mine\nAGENT_MAX_TUNNELS=7\nSVC_SERVER_ADDR=old.test:1\n')
    const { authtoken, settings: handed } = readHandover(file)
    const taken = { ...layout(root), authtoken, settings: handed }
    applyChanges(root, planInstall(taken))
    expect(readFileSync(settings, 'utf8')).toBe(
      '# mine\nAGENT_MAX_TUNNELS=7\nSVC_SERVER_ADDR=gw.test:4443\nAGENT_DOMAIN=cam01.site.test\n',
    )
    const token = join(root, '/etc/credstore/svc-authtoken')
    expect(readFileSync(token, 'utf8')).toBe('canary_token_of_the_test_0123456789\n')
    expect([statSync(settings).mode & 0o777, statSync(token).mode & 0o777]).toEqual([0o600, 0o600])
    expect(planInstall(taken).map(({ kind }) => kind)).toEqual(['keep', 'keep', 'keep', 'keep'])
    removeDurably(file)
    expect(existsSync(file)).toBe(false)
    expect(() => readHandover(file)).toThrow(/File not found: .*already have been installed/)
  })

  it.runIf(mayInstall).each([
    ['by their own path', false],
    ['by a link', true],
  ])('leaves settings that are in their place already, given %s', async (_how, isLink) => {
    const root = temporaryFolder()
    const settings = join(root, '/etc/device-agent/agent.env')
    mkdirSync(join(root, '/etc/device-agent'), { recursive: true })
    const own = "AGENT_DOMAIN='cam01.site.test' # mine\n"
    writeFileSync(settings, `${own}SVC_AUTHTOKEN=canary_token_of_the_test_0123456789\n`)
    const link = join(temporaryFolder(), 'cam01.env')
    if (isLink) symlinkSync(settings, link)
    const printed = new PassThrough().setEncoding('utf8')
    await serviceCommand({
      ...{ environment: {}, stdout: printed, stderr: printed },
      stop: new AbortController().signal,
    }).parseAsync(['install', '--root', root, '--env-file', isLink ? link : settings], {
      from: 'user',
    })
    expect(printed.read()).not.toMatch(/^remove/m)
    expect(readFileSync(settings, 'utf8')).toBe(own)
    const token = join(root, '/etc/credstore/svc-authtoken')
    expect(readFileSync(token, 'utf8')).toBe('canary_token_of_the_test_0123456789\n')
  })

  it('takes nothing over with which no service could start', () => {
    const file = join(temporaryFolder(), 'cam01.env')
    writeFileSync(file, 'AGENT_DOMIAN=cam01.site.test\n')
    expect(() => readHandover(file)).toThrow(/AGENT_DOMIAN/)
    writeFileSync(file, 'canary_token_of_the_test_0123456789\n')
    expect(() => readHandover(file)).toThrow(/contains no settings/)
    writeFileSync(file, 'SVC_AUTHTOKEN="a b"\n')
    expect(() => readHandover(file)).toThrow(/contains no SVC_AUTHTOKEN/)
  })

  it('changes nothing the second time', () => {
    const root = temporaryFolder()
    applyChanges(root, planInstall(layout(root)))
    expect(planInstall(layout(root)).map(({ kind }) => kind)).toEqual([
      'keep',
      'keep',
      'keep',
      'keep',
    ])
  })

  it('replaces its own unit and the token, and never a file of the owner', () => {
    const root = temporaryFolder()
    applyChanges(root, planInstall(layout(root)))
    const settings = join(root, '/etc/device-agent/agent.env')
    writeFileSync(settings, 'AGENT_DOMAIN=mine.example.com\n')
    writeFileSync(join(root, '/etc/systemd/system/device-agent.service'), 'old')
    const again = planInstall({ ...layout(root), authtoken: new Secret('another') })
    expect(again.map(({ kind }) => kind)).toEqual(['update', 'update', 'keep', 'keep'])
    applyChanges(root, again)
    expect(readFileSync(settings, 'utf8')).toBe('AGENT_DOMAIN=mine.example.com\n')
  })

  it.each([
    ['of its own', undefined],
    ['with settings', { AGENT_DOMAIN: 'mine.example.com' }],
  ])('removes the authtoken of an interrupted join for an authtoken %s', (_name, settings) => {
    const root = temporaryFolder()
    applyChanges(root, planInstall(layout(root)))
    const path = join(root, '/etc/device-agent/agent.env')
    writeFileSync(path, '# mine\nAGENT_DOMAIN=mine.example.com\nSVC_AUTHTOKEN_JOINED=earlier\n')
    const without = { ...layout(root), authtoken: undefined, settings }
    expect(planInstall(without).map(({ kind }) => kind)).toEqual(['keep', 'keep', 'keep'])
    applyChanges(root, planInstall({ ...layout(root), settings }))
    const given = parse(readFileSync(path))
    expect(given).toEqual({ AGENT_DOMAIN: 'mine.example.com' })
    expect(readFileSync(path, 'utf8')).toMatch(/^# mine\n/)
    const { agent } = parseConfig({ ...given, CREDENTIALS_DIRECTORY: join(root, 'etc/credstore') })
    expect(readFileSync(agent.authtokenFile ?? '', 'utf8')).toBe('canary-token\n')
  })

  it('replaces the authtoken that a person has set, for systems that pass no credentials', () => {
    const root = temporaryFolder()
    applyChanges(root, planInstall(layout(root)))
    const path = join(root, '/etc/device-agent/agent.env')
    writeFileSync(path, '# mine\nSVC_AUTHTOKEN=earlier\n')
    applyChanges(root, planInstall({ ...layout(root), authtoken: undefined }))
    expect(readFileSync(path, 'utf8')).toBe('# mine\nSVC_AUTHTOKEN=earlier\n')
    applyChanges(root, planInstall(layout(root)))
    expect(readFileSync(path, 'utf8')).toBe('# mine\nSVC_AUTHTOKEN=canary-token\n')
    const tokenPath = join(root, '/etc/credstore/svc-authtoken')
    expect(readFileSync(tokenPath, 'utf8')).toBe('canary-token\n')
  })

  it('says which file cannot be written, and as whom to run it', () => {
    // Nobody makes a folder in /sys, not even root.
    expect(() => applyChanges('/sys', planInstall(layout('/sys')))).toThrow(
      /^Cannot write \/etc\/systemd\/system\/device-agent\.service \(E[A-Z]+\)\. .+ sudo\.$/,
    )
  })

  it('leaves settings and data behind when it is uninstalled', () => {
    const root = temporaryFolder()
    applyChanges(root, planInstall(layout(root)))
    applyChanges(root, planUninstall({ root, name: 'device-agent' }))
    expect(existsSync(join(root, '/etc/systemd/system/device-agent.service'))).toBe(false)
    expect(existsSync(join(root, '/etc/credstore/svc-authtoken'))).toBe(true)
    expect(planUninstall({ root, name: 'device-agent' })).toEqual([])
  })
})

// systemd-analyze reads the units as systemd would; machines without systemd cannot judge them.
describe.runIf(hasSystemd)('the units', () => {
  it.each(UNITS)('those of %s are understood without a complaint', (name) => {
    const root = temporaryFolder()
    mkdirSync(join(root, 'dist'))
    writeFileSync(join(root, 'dist/main.js'), '')
    applyChanges(root, planInstall({ ...layout(root), name, main: join(root, 'dist/main.js') }))
    const units = planUninstall({ root, name }).map(({ path }) => join(root, path))
    expect(units).toHaveLength(name === 'device-gateway' ? 2 : 1)
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', ...units], {
      encoding: 'utf8',
    })
    expect([status, stderr]).toEqual([0, ''])
  })

  it.each(UNITS)('%s.service exposes little', (name) => {
    const unit = join(import.meta.dirname, `${UNIT_FOLDER}/${name}.service`)
    const { status, stdout } = spawnSync(
      'systemd-analyze',
      ['security', '--offline=true', '--threshold=15', unit],
      { encoding: 'utf8' },
    )
    expect([status, stdout.trim().split('\n').at(-1)]).toEqual([0, expect.stringContaining('OK')])
  })
})

describe('start of an installed gateway', () => {
  /** Calls of systemctl for a service of which no file has changed. */
  const calls = (isOutdated: boolean) => {
    const folder = temporaryFolder()
    const log = join(folder, 'calls')
    const program = `#!/bin/sh\necho "$*" >> '${log}'\n`
    writeFileSync(join(folder, 'systemctl'), program, { mode: 0o755 })
    vi.stubEnv('PATH', `${folder}:${process.env.PATH}`)
    onTestFinished(() => void vi.unstubAllEnvs())
    const installation = { root: '/', name: 'device-gateway' } as const
    startInstalled(new PassThrough(), installation, [], { isOutdated })
    return readFileSync(log, 'utf8').trim().split('\n').slice(2)
  }

  it('restarts it with its sockets if it runs with settings of before', () => {
    const units = 'device-gateway.socket device-gateway.service'
    expect(calls(true)).toEqual([`stop ${units}`, `start ${units}`])
  })

  it('leaves a service as it is without a change', () => {
    expect(calls(false)).toEqual(['start device-gateway'])
  })
})
