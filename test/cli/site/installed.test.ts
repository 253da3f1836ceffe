import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { CommandContext } from '../../../src/cli/command-context.ts'
import { createProgram } from '../../../src/cli/program.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { startGateway } from '../../helpers/running-gateway.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** Runs a command with only the settings of the service that is installed below a folder. */
async function run(
  root: string,
  args: readonly string[],
  environment: CommandContext['environment'] = {},
  stderr = new PassThrough(),
) {
  const stdout = new PassThrough()
  const { signal: stop } = new AbortController()
  const program = createProgram({ environment, root, stdout, stderr, stop })
  onTestFinished(() => {
    process.exitCode = undefined
  })
  await program.parseAsync(['node', 'device-agent', ...args])
  stdout.end()
  return text(stdout)
}

describe.skipIf(!hasPostgres)('a command on the machine of an installed gateway of several', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Settings of the service, as its manager reads them. */
  async function install(more: readonly string[] = []) {
    const root = temporaryFolder()
    const folder = join(root, 'etc/device-gateway')
    mkdirSync(folder, { recursive: true })
    const address = await postgres.database()
    const { host, port, user, database, password } = address
    const passwordFile = join(folder, 'db-password')
    writeFileSync(passwordFile, password?.reveal() ?? '')
    const lines = [
      `GATEWAY_DATABASE_URL=postgres://${user}@${host}:${port}/${database}?sslmode=disable`,
      `GATEWAY_DATABASE_PASSWORD_FILE=${passwordFile}`,
      `GATEWAY_PEER_LISTEN=127.0.0.1:${lastingAddress().port}`,
      ...more,
    ]
    writeFileSync(join(folder, 'gateway.env'), `${lines.join('\n')}\n`)
    return { root, address }
  }

  it('makes join tokens', async () => {
    const { root, address } = await install()
    await GatewayCluster.open(address).start()
    expect(await run(root, ['gateway', 'join-token'])).toMatch(/^\S+\n$/)
    // A gateway of its own, as in development.
    await expect(run(root, ['gateway', 'join-token'], { GATEWAY_DATA_DIR: root })).rejects.toThrow(
      'GATEWAY_DATABASE_URL is not set',
    )
  })

  // Only root may give files away.
  it.runIf(process.geteuid?.() === 0)(
    'warns after a migration of files that the service cannot read',
    async () => {
      const { root } = await install()
      const folder = join(root, 'var/lib/device-gateway/gateway')
      mkdirSync(folder, { recursive: true })
      const single = await startGateway({ dataDir: folder })
      await single.gateway.stop()
      chownSync(folder, 1234, 1234)
      const password = join(root, 'etc/device-gateway/db-password')
      chmodSync(password, 0o600)
      const stderr = new PassThrough()
      expect(await run(root, ['gateway', 'migrate'], {}, stderr)).toMatch(/^Copied \d+ rows/)
      expect(String(stderr.read())).toContain(
        `The service cannot read ${password}. Give the file to the user of the service: sudo chown --reference=${folder} ${password} && `,
      )
    },
  )

  it('drains that gateway with the key that it left', async () => {
    const api = lastingAddress()
    const { root, address } = await install([`GATEWAY_API_LISTEN=127.0.0.1:${api.port}`])
    const cluster = GatewayCluster.open(address)
    const one = await cluster.start({ apiListen: { host: '127.0.0.1', port: api.port } })
    await cluster.start({ authtoken: one.authtoken })
    const { apiKey } = await managed(one)
    const data = join(root, 'var/lib/device-gateway/gateway')
    mkdirSync(data, { recursive: true })
    writeFileSync(join(data, 'api-key'), apiKey.reveal())
    expect(await run(root, ['gateway', 'drain'])).toContain('is empty')
    expect(nodeIn(one.gateway)?.readiness).toMatchObject({ state: 'away' })
    expect(await run(root, ['gateway', 'drain', '--undo'])).toContain('accepts connections again')
  })
})

it('is told the command that starts the installed gateway, and only for that gateway', async () => {
  const root = temporaryFolder()
  const data = join(root, 'var/lib/device-gateway/gateway')
  for (const folder of [join(root, 'etc/device-gateway'), join(root, 'bin'), data])
    mkdirSync(folder, { recursive: true })
  const { port } = lastingAddress()
  const listen = `GATEWAY_API_LISTEN=127.0.0.1:${port}`
  writeFileSync(join(root, 'etc/device-gateway/gateway.env'), `${listen}\n`)
  writeFileSync(join(data, 'api-key'), 'key')
  const systemctl = `#!/bin/sh
[ "$2" = device-gateway ] || exit 1
printf 'LoadState=loaded\\nActiveState=inactive\\nSubState=dead\\nUnitFileState=enabled\\n'
[ "$1" = show ] && printf 'NRestarts=0\\n'
`
  writeFileSync(join(root, 'bin/systemctl'), systemctl, { mode: 0o755 })
  vi.stubEnv('PATH', `${join(root, 'bin')}:${process.env.PATH}`)
  onTestFinished(() => void vi.unstubAllEnvs())
  const start = 'systemctl start device-gateway.socket device-gateway'
  const commands = [['invite'], ['invites'], ['drain'], ['show', 'ca']]
  for (const command of commands) {
    await expect(run(root, ['gateway', ...command])).rejects.toThrow(`Run ${start}.`)
  }
  expect(await run(root, ['gateway', 'status'])).toContain(`Start it: ${start}. `)
  expect(process.exitCode).toBe(1)
  expect(JSON.parse(await run(root, ['gateway', 'status', '--json']))).toMatchObject({
    service: 'device-gateway',
    active: false,
  })
  const own = { GATEWAY_DATA_DIR: data, GATEWAY_API_LISTEN: `127.0.0.1:${port}` }
  await expect(run(root, ['gateway', 'invites'], own)).rejects.toThrow('Start the gateway, or')
  const url = `http://127.0.0.1:${port}`
  const other = ['gateway', 'invites', '--api-url', url, '--key-file', join(data, 'api-key')]
  await expect(run(root, other)).rejects.toThrow('Start the gateway, or check --api-url.')
})

it('shows the keys of the installed gateway', async () => {
  const root = temporaryFolder()
  const data = join(root, 'var/lib/device-gateway/gateway')
  for (const folder of [join(root, 'etc/device-gateway'), data])
    mkdirSync(folder, { recursive: true })
  writeFileSync(join(root, 'etc/device-gateway/gateway.env'), 'GATEWAY_HOLD_SECONDS=5\n')
  writeFileSync(join(data, 'ca.pem'), 'the certificate\n')
  expect(await run(root, ['gateway', 'show', 'ca'])).toBe('the certificate\n')
  const document = await run(root, ['gateway', 'show', 'ca', '--json'])
  const file = join(data, 'ca.pem')
  expect(JSON.parse(document)).toEqual({ what: 'ca', file, value: 'the certificate' })
  await expect(run(root, ['gateway', 'show', 'api-key', '--json'])).rejects.toThrow(
    /^Cannot read the API key at .*: the file does not exist\./,
  )
  // A gateway of `up` has an API key, and no file with the authtoken of a first device.
  const missing = () => run(root, ['gateway', 'show', 'authtoken'])
  await expect(missing()).rejects.toThrow('Start the gateway once')
  writeFileSync(join(data, 'api-key'), 'key')
  await expect(missing()).rejects.toThrow(
    /npm start.*create an invitation: device-agent gateway invite/,
  )
})
