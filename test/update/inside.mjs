// Runs in a copy of the system with the package installed, by the Node of the package: a gateway, the
// agent below a supervisor, a visitor who never stops asking, and one update after the other.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer, request } from 'node:http'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

const NODE = '/usr/lib/device-agent/bin/node'
const SETTLE = '/usr/lib/device-agent/bin/settle-update'
const PROGRAM = '/usr/bin/device-agent'
const STATE = '/opt/device-agent/state.json'
/** On a small disk, of which one can be full. */
const DATA = '/srv/device-agent'
/** In a mount namespace with the data folder as a mount point, as systemd gives it to commands with `+`. */
const AS_SYSTEMD = [
  '--mount',
  'sh',
  '-euc',
  'mkdir -p "$1"; mount --bind "$1" "$1"; exec "$2"',
  'sh',
  DATA,
  SETTLE,
]
const SOCKET = '/run/supervisor.sock'
const RESTART_PAUSE_MS = 2_000
const STOP_WITHIN_MS = 90_000
const SERVES_WITHIN_S = 60
/** Leaves no room for it to lie there twice. */
const FILLER = `${DATA}/filler`
const FILLER_BYTES = 120_000_000

/**
 * What systemd does with the unit: settle before each start, Restart=always after 2 s, a stop that
 * becomes a kill. It watches over no start and no ping: what systemd ends for that, the trial has to.
 */
class Supervisor {
  #child
  #isAskedToRestart = false
  #isOver = false

  constructor(env) {
    this.env = env
    this.starts = 0
    this.cuts = 0
    this.running = this.#run()
  }

  async #run() {
    while (!this.#isOver) {
      const settled = this.#settle()
      if (settled.status === 0) {
        this.starts += 1
        this.#isAskedToRestart = false
        this.#child = spawn(PROGRAM, ['run'], { env: this.env, stdio: ['ignore', 'pipe', 'pipe'] })
        this.log = ''
        for (const out of [this.#child.stdout, this.#child.stderr]) {
          out.on('data', (part) => (this.log = (this.log + part).slice(-100_000)))
        }
        await once(this.#child, 'exit')
      }
      if (!this.#isAskedToRestart && !this.#isOver) await pause(RESTART_PAUSE_MS)
    }
  }

  /** With a power cut, when one is due: the start after it has to go on from there. */
  #settle() {
    const env = { ...this.env }
    const cut = this.cutIn?.(readState().state)
    if (cut !== undefined) {
      this.cutIn = undefined
      Object.assign(env, { CUT_AFTER: String(cut), NODE_OPTIONS: '--import=/run-update/cut.mjs' })
    }
    const settled = spawnSync('unshare', AS_SYSTEMD, {
      env,
      stdio: ['ignore', 'inherit', 'inherit'],
    })
    if (cut !== undefined) this.cuts += settled.signal === 'SIGKILL' ? 1 : 0
    return settled
  }

  restart() {
    const child = this.#child
    this.#isAskedToRestart = true
    child.kill('SIGTERM')
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS)
    child.once('exit', () => clearTimeout(timer))
  }

  kill() {
    this.#child.kill('SIGKILL')
  }

  async stop() {
    this.#isOver = true
    this.#child.kill('SIGKILL')
    await this.running
  }
}

async function ask(url, { method = 'GET', headers = {}, body } = {}) {
  const sent = request(url, { method, headers, timeout: 5_000 })
  sent.on('timeout', () => sent.destroy(new Error('no answer')))
  sent.end(body)
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const part of response) text += part
  return { status: response.statusCode, text }
}

const readState = () => {
  try {
    return JSON.parse(readFileSync(STATE, 'utf8'))
  } catch {
    return {}
  }
}

/** Programs of this name space whose command line has these words. */
function pidsOf(words) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').includes(words)
      } catch {
        return false
      }
    })
    .map(Number)
}

for (const folder of ['/run/device-agent', DATA, '/var/lib/device-gateway']) {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
}
const gatewayProcess = spawn(NODE, ['/usr/lib/device-agent/dist/main.js', 'gateway', '--json'], {
  env: {
    LOG_LEVEL: 'error',
    GATEWAY_DATA_DIR: '/var/lib/device-gateway',
    GATEWAY_AGENT_LISTEN: '127.0.0.1:0',
    GATEWAY_HTTP_LISTEN: '127.0.0.1:0',
    GATEWAY_HTTPS_LISTEN: '127.0.0.1:0',
    GATEWAY_API_LISTEN: '127.0.0.1:0',
  },
  stdio: ['ignore', 'pipe', 'inherit'],
})
const [line] = await once(createInterface({ input: gatewayProcess.stdout }), 'line')
const gateway = JSON.parse(line)

const service = createHttpServer((_, response) => response.end('served'))
service.listen(0, '127.0.0.1')
await once(service, 'listening')

// The only part of systemctl that an update uses.
writeFileSync(
  '/usr/local/sbin/systemctl',
  `#!${NODE}\nrequire('node:net').connect('${SOCKET}').end(process.argv.slice(2).join(' '))\n`,
)
chmodSync('/usr/local/sbin/systemctl', 0o755)
const supervisor = new Supervisor({
  PATH: process.env.PATH,
  LOG_LEVEL: 'warn',
  STATE_DIRECTORY: DATA,
  RUNTIME_DIRECTORY: '/run/device-agent',
  AGENT_LISTEN: '127.0.0.1:7040',
  AGENT_DRAIN_SECONDS: '1',
  SVC_SERVER_ADDR: gateway.agent_listen,
  SVC_CA_CERT: gateway.ca_cert,
  SVC_AUTHTOKEN_FILE: gateway.authtoken_file,
})
createServer(async (socket) => {
  let command = ''
  for await (const part of socket) command += part
  if (command.includes('kill')) supervisor.kill()
  else if (command.includes('restart')) supervisor.restart()
}).listen(SOCKET)

const visit = (domain = 'always.site.localhost') =>
  ask(gateway.ingress_http, { headers: { host: domain } })
    .then(({ status }) => status)
    .catch(() => 0)
/** Asks again and again, and knows how long nobody answered at most. */
const visitor = {
  servedAt: performance.now(),
  gapMs: 0,
  /** What it got instead of an answer since the last one; 0 is no status. */
  missed: new Map(),
  missedInGap: '',
  async run() {
    for (;;) {
      const status = await visit()
      if (status !== 200) this.missed.set(status, (this.missed.get(status) ?? 0) + 1)
      else {
        const gapMs = performance.now() - this.servedAt
        if (gapMs > this.gapMs) {
          this.gapMs = gapMs
          this.missedInGap = Array.from(this.missed, ([got, count]) => `${count} x ${got}`).join(
            ', ',
          )
        }
        this.missed.clear()
        this.servedAt = performance.now()
      }
      await pause(50)
    }
  },
}
const agentApi = async (method, path, spec) =>
  ask(`http://127.0.0.1:7040${path}`, {
    method,
    headers: {
      authorization: `Bearer ${readFileSync(`${DATA}/api-token`, 'utf8').trim()}`,
      'content-type': 'application/json',
    },
    body: spec && JSON.stringify(spec),
  })
const acknowledged = new Set()
async function create(domain) {
  const spec = { protocol: 'http', forwards_to: `127.0.0.1:${service.address().port}`, domain }
  const { status, text } = await agentApi('POST', '/tunnels', spec).catch((error) => ({
    status: 0,
    text: error.message,
  }))
  if (status === 200 || status === 202) acknowledged.add(domain)
  return { status, text }
}
async function eventually(what, look, withinMs = 60_000) {
  const end = performance.now() + withinMs
  while (!(await look())) {
    if (performance.now() > end) throw new Error(`not within ${withinMs / 1_000} s: ${what}`)
    await pause(100)
  }
}
const versionOfProgram = () =>
  JSON.parse(spawnSync(PROGRAM, ['version', '--json'], { encoding: 'utf8' }).stdout)

async function update({ name, archive, version, outcome, hindrance }, running, number) {
  visitor.gapMs = 0
  const before = acknowledged.size
  const made = await create(`before-${number}.site.localhost`)
  if (acknowledged.size === before) throw new Error(`${name}: no tunnel before: ${made.text}`)
  if (hindrance === 'full disk') {
    spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=120m', 'tmpfs', '/opt'])
  }
  if (hindrance === 'no room for the data') writeFileSync(FILLER, Buffer.alloc(FILLER_BYTES))
  const [, where, after] = /^(begin|undo) cut (\d+)$/.exec(hindrance ?? '') ?? []
  const cutsBefore = supervisor.cuts
  if (where) {
    const state = where === 'begin' ? 'prepared' : 'trying'
    supervisor.cutIn = (found) => (found === state ? Number(after) : undefined)
  }
  const child = spawn(PROGRAM, ['update', archive], { env: { PATH: process.env.PATH } })
  let said = ''
  child.stdout.on('data', (part) => (said += part))
  child.stderr.on('data', (part) => (said += part))
  let trialAt
  let waits = 0
  const isOver = once(child, 'exit').then(([code]) => ({ code }))
  let ended
  isOver.then((it) => (ended = it))
  while (!ended) {
    const state = readState()
    if (trialAt === undefined && state.state === 'trying') {
      trialAt = performance.now()
      if (name === 'gets no link') {
        const args = ['storage', 'confirm', '--data-dir', DATA]
        const { status, stderr } = spawnSync(PROGRAM, args, { encoding: 'utf8' })
        if (status === 0 || !stderr.includes('on trial')) throw new Error(`confirmed: ${stderr}`)
      }
      if (hindrance === 'killed with its judge') {
        await eventually('it runs', async () => (await visit()) === 200)
        for (const pid of pidsOf('update watch')) process.kill(pid, 'SIGKILL')
        supervisor.kill()
      }
    }
    // Whoever changes something meanwhile is refused, or finds it afterwards.
    if (state.state === 'trying') {
      const { status } = await create(`during-${number}-${waits}.site.localhost`)
      if (status !== 0) waits += 1
    }
    await pause(100)
  }
  await eventually(`${name}: a visitor is served`, async () => (await visit()) === 200)
  if (hindrance === 'full disk') spawnSync('umount', ['/opt'])
  if (hindrance === 'no room for the data') rmSync(FILLER)
  if (where && supervisor.cuts !== cutsBefore + 1) throw new Error(`${name}: it was not cut`)
  const serves = outcome === 'confirmed' ? version : running
  const { version: found } = versionOfProgram()
  if (found !== serves) throw new Error(`${name}: ${found} runs instead of ${serves}: ${said}`)
  if ((ended.code === 0) !== (outcome === 'confirmed'))
    throw new Error(`${name}: ended with ${ended.code}: ${said}`)
  const isTried = outcome === 'undone' || outcome === 'confirmed'
  // A trial that ends at once may be over between two looks.
  if (trialAt !== undefined && !isTried) throw new Error(`${name}: was tried: ${said}`)
  await toldEverywhere({ name, outcome, version })
  for (const domain of acknowledged) {
    await eventually(`${name}: ${domain} answers`, async () => (await visit(domain)) === 200)
  }
  const { text } = await agentApi('GET', '/tunnels')
  const kept = new Set(JSON.parse(text).map((it) => it.domain))
  const lost = [...acknowledged].filter((domain) => !kept.has(domain))
  const ghosts = [...kept].filter((domain) => !acknowledged.has(domain))
  if (lost.length + ghosts.length > 0)
    throw new Error(`${name}: lost ${lost}, not asked for ${ghosts}`)
  // A gap that has not ended would count for the next version.
  const sinceMs = performance.now()
  await eventually(`${name}: the visitor is served`, () => visitor.servedAt > sinceMs)
  const seconds = visitor.gapMs / 1_000
  if (seconds > SERVES_WITHIN_S) {
    throw new Error(`${name}: nobody was served for ${seconds} s, but got ${visitor.missedInGap}`)
  }
  return { seconds, said: said.trim().split('\n').at(-1), waits }
}

/** /status, status, doctor and the log name what has come of it. */
async function toldEverywhere({ name, outcome, version }) {
  if (outcome === 'refused') return
  const state = outcome === 'confirmed' ? 'confirmed' : 'rolled-back'
  let answer
  await eventually(`${name}: /status says ${state}`, async () => {
    answer = await agentApi('GET', '/status').catch(() => undefined)
    const { update } = JSON.parse(answer?.text ?? '{}')
    return update?.state === state && update.to === version
  })
  const { sentence } = JSON.parse(answer.text).update
  const tell = (...args) =>
    spawnSync(PROGRAM, args, { env: { PATH: process.env.PATH }, encoding: 'utf8' }).stdout
  const told = { status: tell('status'), update: tell('update'), doctor: tell('doctor') }
  for (const [who, text] of Object.entries(told)) {
    if (who === 'doctor' && outcome === 'confirmed') continue
    if (!text.includes(sentence)) throw new Error(`${name}: ${who} does not say it: ${text}`)
  }
  // A version that is confirmed has nothing to warn of.
  if (outcome !== 'confirmed' && !supervisor.log.includes(JSON.stringify(sentence).slice(1, -1))) {
    throw new Error(`${name}: the log does not say it: ${supervisor.log.slice(-2_000)}`)
  }
}

/** A package that is not newer leaves the update where it is; a newer one takes its place. */
async function packagesBeside(running) {
  for (const [name, expected] of [
    ['package', running],
    ['newer', '9.0.0'],
  ]) {
    const { status, stderr } = spawnSync('dpkg', ['-i', `/run-update/${name}.deb`], {
      encoding: 'utf8',
    })
    const { version } = versionOfProgram()
    if (status !== 0 || version !== expected) {
      throw new Error(`dpkg -i ${name}.deb: ${version} runs instead of ${expected}: ${stderr}`)
    }
  }
  supervisor.restart()
  await eventually('the package serves', async () => {
    const answer = await agentApi('GET', '/status').catch(() => undefined)
    return JSON.parse(answer?.text ?? '{}').versions?.agent === '9.0.0'
  })
  for (const domain of acknowledged) {
    await eventually(`${domain} answers`, async () => (await visit(domain)) === 200)
  }
  process.stdout.write(
    'A package that is older leaves the update in place; a newer one takes it.\n',
  )
}

let failure
try {
  await eventually('the agent is linked', async () => {
    if (!acknowledged.has('always.site.localhost')) {
      await create('always.site.localhost').catch(() => {})
    }
    return (await visit()) === 200
  })
  visitor.servedAt = performance.now()
  void visitor.run()
  let { version: running } = versionOfProgram()
  const versions = JSON.parse(readFileSync('/run-update/versions.json', 'utf8'))
  process.stdout.write(
    '| the new version | ends | longest without an answer | it says |\n|---|---|---|---|\n',
  )
  for (const [number, one] of versions.entries()) {
    const { seconds, said } = await update(one, running, number)
    running = versionOfProgram().version
    process.stdout.write(`| ${one.name} | ${one.outcome} | ${seconds.toFixed(1)} s | ${said} |\n`)
  }
  await packagesBeside(running)
  process.stdout.write(`${acknowledged.size} tunnels acknowledged, all of them answer.\n`)
} catch (error) {
  failure = error
  process.stderr.write(`FAILED: ${error.stack}\n${readFileSync(STATE, 'utf8')}\n`)
} finally {
  await supervisor.stop()
  gatewayProcess.kill('SIGKILL')
  rmSync(SOCKET, { force: true })
}
process.exit(failure ? 1 : 0)
