import { once } from 'node:events'
import { createServer, type Server } from 'node:tls'
import type { Connector, ConnectRequest, EndpointRequest } from '../../src/agent/connector.ts'
import { ProblemError } from '../../src/agent/problem.ts'
import { serviceProblem } from '../../src/agent/service-error.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

/** A service that shakes hands for real and takes endpoints through a connector without an SDK. */
export class FakeService {
  readonly caPem: string
  /** Domains that are open now, each with its policy. */
  readonly open = new Map<string, string | undefined>()
  /** What the service says to a domain: its text and code. */
  readonly refusals = new Map<string, readonly [detail: string, code: string]>()
  readonly connector: Connector
  readonly #server: Server
  #onLost: ConnectRequest['onLost'] | undefined

  private constructor(server: Server, caPem: string) {
    this.#server = server
    this.caPem = caPem
    this.connector = {
      sdkVersion: 'fake',
      connect: (request) => {
        this.#onLost = request.onLost
        const session = { open: (it: EndpointRequest) => this.#open(it), close: async () => {} }
        return Promise.resolve(session)
      },
    }
  }

  static async start(): Promise<FakeService> {
    const { caPem, certPem, keyPem } = await createTlsFixture()
    const server = createServer({ cert: certPem, key: keyPem })
    server.on('secureConnection', (socket) => socket.on('error', () => {}))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new FakeService(server, caPem)
  }

  get address(): string {
    const { port } = this.#server.address() as { port: number }
    return `127.0.0.1:${port}`
  }

  /** Takes no more sessions and drops the one there is. */
  goAway(): void {
    this.#server.close()
    this.open.clear()
    this.#onLost?.(serviceProblem('the service went away', undefined))
  }

  stop(): void {
    this.#server.close()
  }

  async #open({ domain, policy }: EndpointRequest) {
    const refusal = this.refusals.get(domain)
    if (refusal) throw new ProblemError(serviceProblem(...refusal))
    this.open.set(domain, policy)
    const close = async () => void this.open.delete(domain)
    return { url: `https://${domain}`, close }
  }
}
