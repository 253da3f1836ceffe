// Runs in the bare root, by the Node of the package: gateway and agent as a device and its server have
// them, a service behind a tunnel, and a visitor. Says nothing when all is well.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

// `kept`: on the data of an earlier run, whose tunnel has to be there.
const [, , program, dataDir = '/var/lib', data = 'new'] = process.argv
const SERVICE_PORT = 8_123
const READY_WITHIN_MS = 240_000
const gatewayDir = `${dataDir}/device-gateway`
const agentDir = `${dataDir}/device-agent`
for (const folder of [gatewayDir, agentDir]) mkdirSync(folder, { recursive: true })

const running = []
async function start(command, env) {
  const child = spawn(program, [command, '--json'], {
    env: { PATH: process.env.PATH, LOG_LEVEL: 'error', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  running.push(child)
  const lines = createInterface({ input: child.stdout })
  const signal = AbortSignal.timeout(READY_WITHIN_MS)
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`${command} ended with ${code} before it was ready`)
  })
  ended.catch(() => {})
  const [line] = await Promise.race([once(lines, 'line', { signal }), ended])
  return JSON.parse(line)
}

/** The status and body of an answer of this machine. */
async function ask(url, { method = 'GET', headers = {}, body } = {}) {
  const sent = request(url, { method, headers })
  sent.end(body)
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const part of response) text += part
  return { status: response.statusCode, text }
}

async function expectAnswer(what, status, asking) {
  const answer = await asking()
  if (answer.status !== status) {
    throw new Error(`${what}: ${answer.status} instead of ${status}: ${answer.text}`)
  }
  return answer.text
}

const service = createServer((_, response) => response.end('from behind the tunnel'))
service.listen(SERVICE_PORT, '127.0.0.1')
await once(service, 'listening')

try {
  const gateway = await start('gateway', {
    GATEWAY_DATA_DIR: gatewayDir,
    GATEWAY_AGENT_LISTEN: '127.0.0.1:0',
    GATEWAY_HTTP_LISTEN: '127.0.0.1:0',
    GATEWAY_HTTPS_LISTEN: '127.0.0.1:0',
    GATEWAY_API_LISTEN: '127.0.0.1:0',
  })
  const agent = await start('run', {
    AGENT_DATA_DIR: agentDir,
    AGENT_LISTEN: '127.0.0.1:0',
    SVC_SERVER_ADDR: gateway.agent_listen,
    SVC_CA_CERT: gateway.ca_cert,
    SVC_AUTHTOKEN_FILE: gateway.authtoken_file,
  })
  const authorization = `Bearer ${readFileSync(`${agentDir}/api-token`, 'utf8').trim()}`
  const body = JSON.stringify({
    protocol: 'http',
    forwards_to: `localhost:${SERVICE_PORT}`,
    domain: 'hello.site.localhost',
  })
  const headers = { authorization, 'content-type': 'application/json' }
  if (data !== 'kept') {
    const made = await ask(`${agent.agent_api}/tunnels`, { method: 'POST', headers, body })
    if (made.status !== 200 && made.status !== 202) throw new Error(`POST /tunnels: ${made.text}`)
  }
  const visit = () => ask(gateway.ingress_http, { headers: { host: 'hello.site.localhost' } })
  for (let tries = 0; tries < 60 && (await visit()).status !== 200; tries++) await pause(1_000)
  const text = await expectAnswer('a visitor', 200, visit)
  if (text !== 'from behind the tunnel') throw new Error(`a visitor got: ${text}`)
  const doctor = spawn(program, ['doctor', '--json'], {
    env: {
      PATH: process.env.PATH,
      AGENT_DATA_DIR: agentDir,
      SVC_SERVER_ADDR: gateway.agent_listen,
      SVC_CA_CERT: gateway.ca_cert,
      SVC_AUTHTOKEN_FILE: gateway.authtoken_file,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let found = ''
  for await (const part of doctor.stdout) found += part
  const upstream = found.split('\n').find((line) => line.includes('upstream localhost:'))
  if (!upstream?.includes('"good"')) throw new Error(`the doctor of the upstream: ${found}`)
  if (!existsSync(`${agentDir}/agent.db`)) throw new Error('the agent keeps nothing')
} finally {
  service.close()
  for (const child of running) child.kill('SIGTERM')
  await Promise.all(running.map((child) => child.exitCode ?? once(child, 'exit')))
}
process.exit()
