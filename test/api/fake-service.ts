import { once } from 'node:events'
import { createServer, type Server } from 'node:tls'
import { FakeConnector, refusal } from '../helpers/fake-connector.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

const TLS = createTlsFixture()

/** The service as the agent meets it: a real TLS handshake, then a connector without the SDK. */
export class FakeService {
  readonly connector = new FakeConnector()
  readonly caPem: string
  readonly #refusals = new Map<string, number>()
  readonly #server: Server

  private constructor(server: Server, caPem: string) {
    this.#server = server
    this.caPem = caPem
    this.connector.onOpen = ({ domain }) => {
      const code = this.#refusals.get(domain)
      if (code !== undefined) throw refusal(code, 'The service said no.')
    }
  }

  static async start(): Promise<FakeService> {
    const { caPem, certPem, keyPem } = await TLS
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

  get online(): string[] {
    return this.connector.online
  }

  /** Says ERR_NGROK_`code` to this domain from now on. */
  refuse(domain: string, code: number): void {
    this.#refusals.set(domain, code)
  }

  /** Drops the session and takes no other. */
  goAway(): void {
    this.stop()
    this.connector.last.lose()
  }

  stop(): void {
    this.#server.close()
  }
}
