// Runs in the bare root, by the Node of the package: a gateway invites, and the installed agent joins and leaves.
// MAX_SECONDS: longest time from `join` to the connection.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline'

const program = 'device-agent'
const maxSeconds = Number(process.env.MAX_SECONDS ?? Number.POSITIVE_INFINITY)
const env = { PATH: process.env.PATH, LOG_LEVEL: 'error' }
const gateway = spawn(program, ['gateway', '--json'], {
  env: {
    ...env,
    GATEWAY_DATA_DIR: '/tmp/inviting',
    GATEWAY_AGENT_LISTEN: '127.0.0.1:0',
    GATEWAY_HTTP_LISTEN: '127.0.0.1:0',
    GATEWAY_HTTPS_LISTEN: '127.0.0.1:0',
    GATEWAY_API_LISTEN: '127.0.0.1:0',
  },
  stdio: ['ignore', 'pipe', 'inherit'],
})

function run(input, ...args) {
  const { status, stdout, stderr } = spawnSync(program, args, { env, input, encoding: 'utf8' })
  if (status !== 0)
    throw new Error(`${program} ${args[0]} ended with ${status}: ${stdout}${stderr}`)
  return stdout
}

const mode = (path) => (statSync(path).mode & 0o777).toString(8)

try {
  const [line] = await once(createInterface({ input: gateway.stdout }), 'line')
  const ready = JSON.parse(line)
  const created = await fetch(`${ready.management_api}/invites`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${readFileSync(ready.api_key_file, 'utf8').trim()}`,
      'svc-version': '2',
      'content-type': 'application/json',
    },
    body: JSON.stringify({ name: 'cam-7', domain: '*.{name}.site.localhost' }),
  })
  const invite = await created.json()
  if (created.status !== 201) throw new Error(`POST /invites: ${JSON.stringify(invite)}`)

  const startedAt = performance.now()
  const said = run(`${invite.join_string}\n`, 'join', '-')
  const seconds = (performance.now() - startedAt) / 1_000
  if (!said.startsWith('This device is connected as cam-7: https://agent.cam-7.site.localhost')) {
    throw new Error(`join: ${said}`)
  }
  const modes = ['agent.env', 'ca.pem'].map((name) => mode(`/etc/device-agent/${name}`))
  if (`${modes} ${mode('/etc/credstore/svc-authtoken')}` !== '600,644 600') {
    throw new Error(`modes: ${modes}`)
  }
  process.stdout.write(`join to connected in ${seconds.toFixed(1)} s\n`)
  if (seconds > maxSeconds) throw new Error(`that is more than ${maxSeconds} s`)
  run('', 'leave', '--yes')
  if (existsSync('/etc/credstore/svc-authtoken') || existsSync('/etc/device-agent/ca.pem')) {
    throw new Error('leave left its secrets')
  }
} finally {
  spawnSync('systemctl', ['disable', '--now', 'device-agent'])
  gateway.kill('SIGTERM')
  await once(gateway, 'exit')
}
process.exit()
