import { strict as assert } from 'node:assert'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { type Engine, expectDone } from './engine.ts'

const DOMAIN = 'hello.site.example.com'
export const GATEWAY = 'gateway.example.com'
/** A service that says hello, and holds /slow until /release. Counts what it holds at /held. */
const SERVICE = `
let held = []
require('node:http').createServer((request, response) => {
  if (request.url === '/slow') return held.push(response)
  if (request.url === '/release') for (const it of held.splice(0)) it.end('at last')
  response.end(request.url === '/held' ? String(held.length) : 'hello')
}).listen(8000)
process.on('SIGTERM', () => process.exit())
`

const EVERYWHERE = {
  GATEWAY_AGENT_LISTEN: '0.0.0.0:4443',
  GATEWAY_HTTP_LISTEN: '0.0.0.0:8080',
  GATEWAY_HTTPS_LISTEN: '0.0.0.0:8443',
  GATEWAY_API_LISTEN: '0.0.0.0:8070',
  GATEWAY_RESERVED_DOMAIN: '*.site.example.com',
}

/** A gateway, a device and a service of it, each in a container, as docs/getting-started/container.md has them. */
export class House {
  readonly engine: Engine
  readonly #secrets: string

  constructor(engine: Engine, folder: string) {
    this.engine = engine
    this.#secrets = join(folder, 'secrets')
    mkdirSync(this.#secrets, { recursive: true })
  }

  async startGateway(options: readonly string[] = []): Promise<void> {
    const name = GATEWAY
    const all = ['--volume', 'gateway:/data', ...options]
    await this.engine.start({ name, command: ['gateway'], env: EVERYWHERE, options: all })
    await this.whenHealthy(GATEWAY, '--gateway')
  }

  /** With the secrets of the gateway, with the mode that engines give them. */
  async startAgent(name = 'agent'): Promise<void> {
    const files = { 'svc-authtoken': 'authtoken', 'gateway-ca': 'ca' }
    for (const [file, what] of Object.entries(files)) {
      writeFileSync(join(this.#secrets, file), await this.shown(what), { mode: 0o644 })
    }
    await this.engine.start({
      name,
      command: ['run'],
      env: {
        SVC_SERVER_ADDR: `${GATEWAY}:4443`,
        SVC_CA_CERT: '/run/secrets/gateway-ca',
        AGENT_FORWARD_ALLOW: 'service:8000',
      },
      options: ['--volume', 'agent:/data', '--volume', `${this.#secrets}:/run/secrets:ro`],
    })
  }

  /** What `gateway show` prints. */
  async shown(what: string): Promise<string> {
    return expectDone(what, await this.engine.agent(GATEWAY, 'gateway', 'show', what)).stdout
  }

  async startService(): Promise<void> {
    await this.engine.start({
      name: 'service',
      command: ['--eval', SERVICE],
      options: ['--entrypoint', '/usr/lib/device-agent/bin/node'],
    })
  }

  async addTunnel(): Promise<void> {
    const added = await this.engine.agent('agent', 'tunnels', 'add', DOMAIN, 'service:8000')
    expectDone('tunnels add', added)
  }

  whenHealthy(name: string, ...options: string[]): Promise<unknown> {
    return eventually(async () => {
      expectDone(await this.engine.log(name), await this.engine.agent(name, 'health', ...options))
    })
  }

  /** A visit of the public URL, at the address that the gateway has now. */
  async visit(path = '/'): Promise<{ status: number; text: string }> {
    const address = await this.engine.address(GATEWAY)
    const ingress = `https://${address}:8443`
    const ca = await this.shown('ca')
    const { status, text } = await publicRequest({ ingress, address, host: DOMAIN, path, ca })
    return { status, text }
  }

  whenVisited(): Promise<unknown> {
    return eventually(async () =>
      assert.deepEqual(await this.visit(), { status: 200, text: 'hello' }),
    )
  }

  /** What the service answers to this machine, past the tunnel. */
  async service(path: string): Promise<string> {
    const response = await fetch(`http://${await this.engine.address('service')}:8000${path}`)
    return response.text()
  }
}
