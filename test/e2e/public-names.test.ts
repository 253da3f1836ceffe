import { spawnSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { hostname, networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { parse } from 'dotenv'
import { describe, expect, it, onTestFinished } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { MAIN, Program, runProgram } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** A name that only the hosts file of the agent knows. */
const NAME = 'gw.example.com'
/** Ways to give one process a hosts file of its own. */
const NAMESPACES = [
  ['unshare', '--mount'],
  ['unshare', '--user', '--map-root-user', '--mount'],
]
const namespace = NAMESPACES.find(([file = '', ...args]) => {
  return spawnSync(file, [...args, 'true']).status === 0
})
const API_TOKEN = 'name-token-of-at-least-20'

const portOf = (address: string) => address.slice(address.lastIndexOf(':') + 1)

async function startGateway(
  env: Readonly<Record<string, string>> = {},
  folder = temporaryFolder(),
) {
  const gateway = await GatewayProgram.start(folder, {
    GATEWAY_AGENT_LISTEN: '0.0.0.0:0',
    ...env,
  })
  return { folder, gateway, port: portOf(gateway.ready.agent_listen) }
}

/** The state of an agent that connects to this address of the gateway. */
async function agentAt(
  { folder, gateway }: Awaited<ReturnType<typeof startGateway>>,
  serverAddr: string,
) {
  const hosts = join(folder, 'hosts')
  writeFileSync(hosts, `127.0.0.1 localhost ${NAME}\n`)
  const mount = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
  const [file = '', ...args] = namespace ?? []
  const agent = new Program({
    command: [file, ...args, 'sh', '-c', mount, 'sh', hosts, process.execPath, MAIN],
    args: ['run', '--json'],
    cwd: folder,
    env: {
      AGENT_DATA_DIR: join(folder, 'agent'),
      LOG_LEVEL: 'silent',
      SVC_SERVER_ADDR: serverAddr,
      SVC_CA_CERT: gateway.ready.ca_cert,
      SVC_AUTHTOKEN_FILE: gateway.ready.authtoken_file,
      AGENT_API_TOKEN: API_TOKEN,
    },
  })
  onTestFinished(async () => void (await agent.end()))
  const { agent_api: agentApi } = await agent.ready<{ agent_api: string }>()
  return async () => {
    const headers = { authorization: `Bearer ${API_TOKEN}` }
    const response = await fetch(`${agentApi}/status`, { headers })
    // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
    return (await response.json()) as any
  }
}

/** All that `device-agent gateway` prints before it is stopped. */
async function printed(env: Readonly<Record<string, string>>): Promise<string> {
  const gateway = new Program({
    args: ['gateway'],
    env: { GATEWAY_DATA_DIR: join(temporaryFolder(), 'gateway'), LOG_LEVEL: 'warn', ...env },
  })
  onTestFinished(async () => void (await gateway.end()))
  let text = ''
  gateway.child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
  })
  await eventually(() => expect(text).toMatch(/ SVC_AUTHTOKEN_FILE=.*\n/))
  return text
}

describe.runIf(namespace)('an agent that uses a DNS name of the gateway', () => {
  it('connects when it is a public name', async () => {
    const site = await startGateway({ GATEWAY_PUBLIC_NAMES: `${NAME}, 203.0.113.7` })
    const status = await agentAt(site, `${NAME}:${site.port}`)
    await eventually(async () => expect(await status()).toMatchObject({ link: { state: 'up' } }))
  })

  it('is told which names the certificate has when it is another name', async () => {
    const site = await startGateway({ GATEWAY_PUBLIC_NAMES: 'other.example.com, 203.0.113.7' })
    const status = await agentAt(site, `${NAME}:${site.port}`)
    await eventually(async () => {
      const { link } = await status()
      expect(link.last_error).toMatch(
        /^gw\.example\.com:\d+ presented a certificate for other names: localhost, .*other\.example\.com, 203\.0\.113\.7/,
      )
    })
    const shown = JSON.stringify(await status())
    expect(shown).toContain('GATEWAY_PUBLIC_NAMES')
    expect(shown).not.toContain('Check SVC_CA_CERT')
  })
})

describe('a gateway with public names', () => {
  it('keeps its certificate until the list changes', async () => {
    const folder = temporaryFolder()
    const start = async (names: string) => {
      const { gateway } = await startGateway({ GATEWAY_PUBLIC_NAMES: names }, folder)
      await gateway.program.end()
      return readFileSync(join(folder, 'gateway/server.pem'), 'utf8')
    }
    const first = await start('a.example.com, b.example.com')
    expect(await start('b.example.com, a.example.com:14443')).toBe(first)
    const fewer = await start('a.example.com')
    expect(fewer).not.toBe(first)
    expect(await start('a.example.com, c.example.com')).not.toBe(fewer)
  })

  it('prints them, with the port of the listener or their own', async () => {
    const text = await printed({
      GATEWAY_AGENT_LISTEN: '0.0.0.0:0',
      GATEWAY_HTTP_LISTEN: '0.0.0.0:0',
      GATEWAY_PUBLIC_NAMES: 'gw.example.com:14443, 203.0.113.7, [2001:db8::7]',
    })
    expect(text).toMatch(/ devices {4}connect to gw\.example\.com:14443, 203\.0\.113\.7:\d+\n/)
    expect(text).toMatch(/ visitors {3}connect to http:\/\/gw\.example\.com:\d+ and /)
    expect(text).toMatch(/ SVC_SERVER_ADDR=gw\.example\.com:14443\n/)
    expect(text).not.toMatch(/127\.0\.0\.1:(14443)/)
    expect(text).not.toContain('GATEWAY_PUBLIC_NAMES')
  })

  it('warns when only this machine can use them', async () => {
    const text = await printed({ GATEWAY_PUBLIC_NAMES: 'gw.example.com' })
    expect(text).toMatch(
      /GATEWAY_AGENT_LISTEN \(127\.0\.0\.1:\d+\) accepts no connection from other machines/,
    )
  })

  it('shows them in /nodes, in targets for visitors, and in what provision writes', async () => {
    const { folder, gateway } = await startGateway({
      GATEWAY_TCP_LISTEN: '0.0.0.0:20000-20100',
      GATEWAY_PUBLIC_NAMES: 'gw.example.com:14443, 203.0.113.7:14444',
    })
    const [node] = (await gateway.manage('GET', '/nodes')).body.nodes
    expect(node.agent_addresses).toEqual(['gw.example.com:14443', '203.0.113.7:14444'])
    const domain = await gateway.manage('POST', '/reserved_domains', { domain: '*.a.test' })
    expect(domain.body.cname_target).toBe('gw.example.com')
    const { records } = (await gateway.manage('POST', `/reserved_domains/${domain.body.id}/check`))
      .body
    expect(records).toMatchObject([{ name: '*.a.test', expected: 'gw.example.com' }])
    const { addr } = (await gateway.manage('POST', '/reserved_addrs', {})).body
    expect(addr).toMatch(/^gw\.example\.com:20\d{3}$/)
    const { code, stdout, stderr } = await runProgram({
      args: ['provision', '--name', 'cam7', '--domain', '*.a.test'],
      cwd: folder,
      env: {
        GATEWAY_DATA_DIR: join(folder, 'gateway'),
        GATEWAY_API_LISTEN: new URL(gateway.ready.management_api).host,
        GATEWAY_AGENT_LISTEN: '0.0.0.0:4443',
        GATEWAY_PUBLIC_NAMES: 'gw.example.com:14443, 203.0.113.7:14444',
      },
    })
    expect([code, stderr]).toEqual([0, ''])
    expect(parse(readFileSync(join(folder, 'cam7.env')))).toMatchObject({
      SVC_SERVER_ADDR: 'gw.example.com:14443',
      SVC_CA_CERT: '/etc/device-agent/ca.pem',
    })
    expect(stdout).toMatch(/\n {2}\*\.a\.test +CNAME +gw\.example\.com\n/)
    expect(stdout).not.toContain('_acme-challenge')
    expect(stdout).toContain(
      `Copy ${join(folder, 'gateway/ca.pem')} to /etc/device-agent/ca.pem on each device.`,
    )
  })
})

describe('a gateway without public names', () => {
  const hasAddress = Object.values(networkInterfaces()).some((addresses) =>
    addresses?.some(({ internal, family }) => !internal && family === 'IPv4'),
  )

  it('warns that 127.0.0.1 is of no use elsewhere', async () => {
    const text = await printed({})
    expect(text).toMatch(/ devices {4}connect to 127\.0\.0\.1:\d+\n/)
    expect(text).toMatch(/warning: .*127\.0\.0\.1.*GATEWAY_AGENT_LISTEN.*GATEWAY_PUBLIC_NAMES/s)
  })

  it.runIf(hasAddress)('prints the addresses of the machine', async () => {
    const text = await printed({ GATEWAY_AGENT_LISTEN: '0.0.0.0:0' })
    expect(text).not.toMatch(/SVC_SERVER_ADDR=(127\.|0\.0\.0\.0)/)
    expect(text).toMatch(/ SVC_SERVER_ADDR=[\d.]+:\d+\n/)
    expect(text).toContain('GATEWAY_PUBLIC_NAMES')
    expect(text).not.toContain('0.0.0.0')
  })

  it('has no wildcard address in its certificate', async () => {
    const { gateway } = await startGateway()
    const pem = readFileSync(join(gateway.ready.ca_cert, '../server.pem'), 'utf8')
    const names = new X509Certificate(pem).subjectAltName
    expect(names).not.toContain('0.0.0.0')
    expect(names).toContain(hostname().toLowerCase())
  })

  it('prints no CNAME record below localhost, and warns where devices get 127.0.0.1', async () => {
    const folder = temporaryFolder()
    const gateway = await GatewayProgram.start(folder)
    const { code, stdout, stderr } = await runProgram({
      args: ['provision', '--name', 'cam7', '--domain', '*.a.test'],
      cwd: folder,
      env: {
        GATEWAY_DATA_DIR: join(folder, 'gateway'),
        GATEWAY_API_LISTEN: new URL(gateway.ready.management_api).host,
        GATEWAY_AGENT_LISTEN: gateway.ready.agent_listen,
      },
    })
    expect(code).toBe(0)
    expect(stdout).not.toContain('CNAME')
    expect(stderr).toMatch(/^warning: .*127\.0\.0\.1.*GATEWAY_PUBLIC_NAMES.*--server-addr.*\n$/)
  })
})
