/**
 * `npx tsx test/upgrade/release-data.ts [COMMIT]`: builds a released version, fills a gateway and an agent by their
 * APIs, and keeps their data folders and their answers in `releases/VERSION`. Run it once for each release.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Site } from '../helpers/site.ts'
import { somePorts } from '../helpers/some-ports.ts'
import { buildOld, lastRelease } from './old-build.ts'
import { answersOf, type Call, RELEASES, SAMPLE_HOST } from './releases.ts'

type Item = Readonly<Record<string, unknown>> & { readonly id: string }

const answer = (body: string) => [
  { actions: [{ type: 'custom-response', config: { status_code: 200, body } }] },
]

async function fillGateway(call: Call): Promise<void> {
  const make = async (path: string, body: object) => (await call('POST', path, body)) as Item
  const [one, two] = [
    await make('/bot_users', { name: 'one' }),
    await make('/bot_users', { name: 'two' }),
  ]
  const owned = { owner_id: one.id, description: 'of one', metadata: '{"room":7}' }
  await make('/credentials', { ...owned, acl: ['bind:*.shop.test', 'bind:gw.test:*'] })
  await make('/credentials', { owner_id: two.id })
  await make('/api_keys', { ...owned, name: 'reader', scope: 'read', owner_only: true })
  await make('/api_keys', { name: 'ends', expires_at: '2099-01-01T00:00:00Z' })
  for (const domain of ['*.shop.test', 'github.io', '*.co.uk', 'cam.gateway.localhost']) {
    await make('/reserved_domains', { ...owned, domain })
  }
  // Two accounts with names of each other, which later versions refuse.
  await make('/reserved_domains', { owner_id: two.id, domain: 'two.shop.test' })
  await make('/reserved_domains', { domain: 'front.test', region: 'eu' })
  await make('/reserved_addrs', owned)
  const policy = await make('/ip_policies', { description: 'office' })
  for (const action of ['allow', 'deny']) {
    await make('/ip_policy_rules', {
      ip_policy_id: policy.id,
      cidr: `10.${action.length}.0.0/16`,
      action,
    })
  }
  const traffic_policy = JSON.stringify({ on_http_request: answer('from the cloud') })
  await make('/endpoints', {
    type: 'cloud',
    url: 'https://front.test',
    traffic_policy,
    metadata: 'm',
  })
  await make('/endpoints', { type: 'cloud', url: 'http://www.shop.test', traffic_policy })
  await make('/endpoints', {
    type: 'cloud',
    url: 'https://a.internal',
    traffic_policy,
    shared: true,
  })
  await make('/endpoints', {
    type: 'cloud',
    url: 'https://pool.shop.test',
    traffic_policy,
    pooling_enabled: true,
  })
  await make('/webhook_endpoints', {
    url: 'https://127.0.0.1:9/hook',
    event_types: ['device.online', 'device.offline'],
  })
  await call('PATCH', `/bot_users/${two.id}`, { active: false })
}

async function fillAgent(call: Call): Promise<void> {
  const make = (body: object) => call('POST', '/tunnels', body)
  const http = { protocol: 'http', forwards_to: 'localhost:9' }
  await make({
    ...http,
    domain: SAMPLE_HOST,
    policy: { on_http_request: answer('from the device') },
  })
  await make({ ...http, domain: 'plain.site.localhost' })
  await make({
    ...{ protocol: 'http', forwards_to: 'https://nas.lan', domain: 'nas.site.localhost' },
    upstream: {
      timeout: 30,
      health: '/healthz',
      http2: true,
      verify_tls: false,
      proxy_protocol: 2,
    },
  })
  await make({ ...http, domain: 'pool.site.localhost', pooling_enabled: true })
  await make({ protocol: 'tls', forwards_to: 'localhost:9', domain: 'tls.site.localhost' })
  await make({ protocol: 'tcp', forwards_to: 'localhost:22' })
  await call('PUT', '/tunnels/plain.site.localhost', {
    ...http,
    forwards_to: 'localhost:10',
    domain: 'plain.site.localhost',
  })
  await make({ ...http, domain: 'gone.site.localhost' })
  await call('DELETE', '/tunnels/gone.site.localhost')
  await call('POST', '/tokens', { name: 'reader', scope: 'read' })
}

const folder = mkdtempSync(join(tmpdir(), 'device-agent-release-'))
process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
const old = buildOld(process.argv[2] ?? lastRelease(), join(folder, 'build'))
const { host, first, last } = somePorts(8)
const env = {
  GATEWAY_TCP_LISTEN: `${formatListenAddress({ host, port: first })}-${last}`,
  GATEWAY_OUTBOUND_ALLOW: '127.0.0.1:9',
  AGENT_FORWARD_ALLOW: 'nas.lan',
}
const command = [process.execPath, old.main] as const
const programs = { gateway: { command }, agent: { command } }
const site = await Site.start(folder, env, programs)
const callOf =
  (send: (method: string, path: string, body?: unknown) => Promise<Response>): Call =>
  async (method, path, body) => {
    const response = await send(method, path, body)
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }
const calls = {
  gateway: callOf((method, path, body) => site.manage(method, path, body)),
  agent: callOf((method, path, body) => site.call(method, path, body)),
}
await fillGateway(calls.gateway)
await fillAgent(calls.agent)
const answers = await answersOf(calls)
await site.stop()
const kept = join(RELEASES, old.version)
mkdirSync(kept, { recursive: true })
writeFileSync(join(kept, 'answers.json'), `${JSON.stringify(answers, undefined, 2)}\n`)
// A start makes the space that is kept free for a full disk.
const archive = join(kept, 'data.tar.gz')
execFileSync('tar', ['--exclude=*.reserve', '-czf', archive, '-C', folder, 'gateway', 'agent'])
process.stderr.write(`${kept}: ${readdirSync(kept).join(', ')}, of commit ${old.commit}\n`)
process.exit(0)
