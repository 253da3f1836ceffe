import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer } from '../base/net/node-http.ts'

/** Beside the agent's own port, so that a stored tunnel to the sample works after a restart too. */
const PREFERRED_PORT = 7041

/** A service to lead the first tunnel to: it answers what it was asked. */
export class SampleService {
  readonly #server: Server = createServer((request, response) => {
    const { method, url, headers } = request
    response.setHeader('content-type', 'text/plain; charset=utf-8')
    response.end(
      `Hello from the device.\n\n${method} ${url}\nhost: ${headers.host}\n` +
        `x-forwarded-for: ${headers['x-forwarded-for']}\n`,
    )
  })

  /** Listens on loopback and answers its port. */
  async start(): Promise<number> {
    try {
      await this.#listen(PREFERRED_PORT)
    } catch {
      await this.#listen(0)
    }
    return (this.#server.address() as AddressInfo).port
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
  }

  async #listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1')
    await once(this.#server, 'listening')
  }
}
