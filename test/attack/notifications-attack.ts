import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import { row, type TrialRow } from '../helpers/trials.ts'
import { type AttackSite, createDeafService } from './attack-site.ts'

const CHANNELS = '/notification_channels'
const CHAT = { name: 'ops', kind: 'webhook', url: 'http://127.0.0.1:9/x' }
const TESTS = 200
/** Tests that an account can send at once. */
const BURST = 5
/** A message is given up after 30 s. */
const WITHIN_S = 45
const MEMORY_MB = 40

/** Channels that must be refused. */
const BAD_CHANNELS: readonly object[] = [
  { ...CHAT, name: 'a\r\nBcc: evil@site.example' },
  { ...CHAT, name: 'x'.repeat(81) },
  { ...CHAT, url: 'file:///etc/passwd' },
  { ...CHAT, url: 'http://user:word@127.0.0.1/' },
  { ...CHAT, url: `http://127.0.0.1/${'x'.repeat(3_000)}` },
  { ...CHAT, tags: Array.from({ length: 21 }, String) },
  { ...CHAT, time_zone: '../../etc/passwd' },
  { ...CHAT, quiet_times: { from: '22:00', to: '22:00' } },
  { ...CHAT, offline_s: -1 },
  { ...CHAT, kind: 'email', url: undefined, addresses: ['a@b.example\r\nRCPT TO:<c@d.example>'] },
  { ...CHAT, secret: 'x' },
]

async function refusals({ site }: AttackSite): Promise<TrialRow> {
  const answers = await Promise.all(BAD_CHANNELS.map((body) => site.manage('POST', CHANNELS, body)))
  const refused = answers.filter(({ status }) => status === 400).length
  const all = BAD_CHANNELS.length
  return row(`${all} bad channels`, `${refused} refused`, 'all', refused === all)
}

async function create({ site }: AttackSite, url: string): Promise<string> {
  const answer = await site.manage('POST', CHANNELS, { ...CHAT, url })
  const { id } = (await answer.json()) as { id: string }
  return id
}

/** Receivers that are silent, endless, slow, or lead to a forbidden address. */
async function hostileReceivers(site: AttackSite): Promise<TrialRow> {
  const endless = createHttpServer((_request, response) => {
    const write = () => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536, 'x')));
      if (!response.destroyed) response.once('drain', write)
    }
    write()
  })
  const trickle = createServer((socket) => {
    const timer = setInterval(() => socket.write('H'), 200)
    socket.on('close', () => clearInterval(timer))
  })
  const redirect = createHttpServer((_request, response) => {
    response.writeHead(307, { location: 'http://169.254.169.254/latest/meta-data/' }).end()
  })
  const servers = [createDeafService(), endless, trickle, redirect]
  const ports = await Promise.all(servers.map((server) => site.serve(server)))
  const ids = await Promise.all(ports.map((port) => create(site, `http://127.0.0.1:${port}/x`)))
  const before = site.gatewayMb
  const startedAt = performance.now()
  const results = await Promise.all(
    ids.map(async (id) => {
      const answer = await site.site.manage('POST', `${CHANNELS}/${id}/test`)
      return (await answer.json()) as { ok: boolean }
    }),
  )
  const seconds = (performance.now() - startedAt) / 1_000
  const grown = site.gatewayMb - before
  const failed = results.filter(({ ok }) => ok === false).length
  return row(
    'silent, endless, slow and redirecting receivers',
    `${failed} of ${ids.length} failed within ${seconds.toFixed(0)} s, ${grown.toFixed(0)} MB more`,
    `all, < ${WITHIN_S} s, < ${MEMORY_MB} MB`,
    failed === ids.length && seconds < WITHIN_S && grown < MEMORY_MB,
  )
}

async function testFlood(site: AttackSite): Promise<TrialRow> {
  let requests = 0
  const receiver = createHttpServer((_request, response) => {
    requests += 1
    response.end()
  })
  const id = await create(site, `http://127.0.0.1:${await site.serve(receiver)}/x`)
  const send = () => site.site.manage('POST', `${CHANNELS}/${id}/test`)
  const answers = await Promise.all(Array.from({ length: TESTS }, send))
  const refused = answers.filter(({ status }) => status === 429).length
  return row(
    `${TESTS} tests at once`,
    `${requests} sent, ${refused} refused`,
    `<= ${BURST} sent, the others refused`,
    requests <= BURST && requests + refused === TESTS,
  )
}

export const attack = {
  name: 'notifications',
  what: 'bad channels, hostile chat servers and a flood of tests against notifications',
  env: { GATEWAY_OUTBOUND_ALLOW: '127.0.0.1' },
  async run(site: AttackSite): Promise<readonly TrialRow[]> {
    const refused = await refusals(site)
    // Before the flood, which uses up the tests of the account.
    const receivers = await hostileReceivers(site)
    return [refused, receivers, await testFlood(site)]
  },
}
