/**
 * What an idle agent on a metered link sends and receives, all IP bytes counted, and how long a dead
 * link goes unnoticed. Gateway and agent are processes in a network of their own, whose counters are
 * the kernel's. `npm run bench:metered [-- minutes]`; 5 unless given, and a little more.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Site } from '../test/helpers/site.ts'
import { printTable, progress, scratchFolder } from './tools.ts'

const INSIDE = 'DEVICE_AGENT_BENCH_NETWORK'
const INGRESS = '127.0.0.1:8443'
const DOMAIN = 'agent.site.localhost'
const MONTH_S = 30 * 24 * 3_600
const HEARTBEAT_S = 45
/** A mobile network's. What is larger than that counts as one packet here, as on a card that splits. */
const MTU = 1_400
/** What a start costs is over then. */
const SETTLE_MS = 20_000
const DEAD_LINK_S = 70
const POLL_MS = 100
const AIM_MB = 30
const AIM_S = 60

const minutes = Number(process.argv[2] ?? 5)
if (!(minutes >= 3 && minutes <= 24 * 60)) {
  console.error('How many minutes? A number from 3 to 1440.')
  process.exit(2)
}
if (process.env[INSIDE] === undefined) process.exit(runInNetwork())

/** Starts this script anew in a network namespace; root or user namespaces are needed for it. */
function runInNetwork(): number {
  const [script = '', ...args] = process.argv.slice(1)
  const setUp = `ip link set lo mtu ${MTU} up && exec "$@"`
  const { status } = spawnSync(
    'unshare',
    ['-rn', 'sh', '-c', setUp, 'sh', process.execPath, ...process.execArgv, script, ...args],
    { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } },
  )
  if (status === null) console.error('The benchmark needs `unshare` and `ip`, and may use them.')
  return status ?? 1
}

interface Counted {
  readonly bytes: number
  readonly packets: number
}

/** Both ways: what is sent on this interface is received on it, and counted there once. */
function counted(): Counted {
  const line = readFileSync('/proc/net/dev', 'utf8').match(/^\s*lo:\s*(\d+)\s+(\d+)/m)
  return { bytes: Number(line?.[1]), packets: Number(line?.[2]) }
}

const site = await Site.start(scratchFolder(), {
  AGENT_METERED: 'true',
  AGENT_DOMAIN: DOMAIN,
  // Checks of services do not leave the device.
  AGENT_UPSTREAM_HEALTH: 'off',
  GATEWAY_HTTPS_LISTEN: INGRESS,
  SVC_INGRESS_ADDR: INGRESS,
})
process.on('exit', () => {
  site.gateway.child.kill('SIGKILL')
  site.agent.child.kill('SIGKILL')
})
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))

interface Status {
  readonly ready: boolean
  readonly verdict: string
  readonly link: { readonly state: string }
}
const status = async () => (await (await site.call('GET', '/status')).json()) as Status

progress('start')
for (;;) {
  const answer = await site.create('device.site.localhost', 9)
  if (answer.status === 200 || answer.status === 409) break
  await sleep(POLL_MS)
}
const beginning = counted()
await sleep(SETTLE_MS)

/** Whole heartbeats: their share must not depend on where the measurement begins. */
const beats = Math.max(
  2,
  Math.round((minutes * 60 - DEAD_LINK_S - SETTLE_MS / 1_000) / HEARTBEAT_S),
)
const seconds = beats * HEARTBEAT_S
progress(`${beats} heartbeats, ${seconds} s`)
const before = counted()
await sleep(seconds * 1_000)
const after = counted()
const { ready, verdict } = await status()
if (!ready) throw new Error(`not idle, but: ${verdict}`)

// The worst moment: a heartbeat was just answered.
progress('a dead link, behind the next heartbeat')
for (let { bytes } = counted(); counted().bytes - bytes < 200; ) await sleep(POLL_MS)
await sleep(1_000)
site.gateway.child.kill('SIGSTOP')
const deadAt = performance.now()
while ((await status()).link.state === 'up') {
  if (performance.now() - deadAt > 2 * AIM_S * 1_000)
    throw new Error('the dead link was not noticed')
  await sleep(POLL_MS)
}
const noticedS = (performance.now() - deadAt) / 1_000
const told = (await status()).verdict
site.gateway.child.kill('SIGCONT')
progress('')

const bytes = after.bytes - before.bytes
const packets = after.packets - before.packets
const monthMb = (bytes / seconds) * MONTH_S * 1e-6
printTable(
  ['what', 'measured', 'aim'],
  [
    [`IP bytes in ${seconds} s, both ways`, `${bytes}, ${packets} packets`, ''],
    ['a month of 30 days, idle', `${monthMb.toFixed(1)} MB`, `below ${AIM_MB} MB`],
    ['a heartbeat, answered', `${Math.round(bytes / beats)} bytes`, ''],
    ['a start, a tunnel, and the look at its own address', `${before.bytes} bytes`, ''],
    ['of it after the tunnel was open', `${before.bytes - beginning.bytes} bytes`, ''],
    ['a dead link noticed', `after ${noticedS.toFixed(1)} s`, `${AIM_S} s`],
  ],
)
console.log(`\nIt said then: ${told}`)
await site.stop()
process.exit(monthMb < AIM_MB && noticedS < AIM_S ? 0 : 1)
