import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Webhook } from 'standardwebhooks'
import { onTestFinished } from 'vitest'
import { eventually } from './eventually.ts'

/** One request as it came, its signature verified. */
export interface Received {
  readonly id: string
  readonly type: string
  readonly sequence: number | null
  readonly timestamp: string
  readonly data: Record<string, unknown>
}

/** Takes webhooks on a port of its own; `answer` says with which status the n-th is answered. */
export async function startReceiver(
  answer: (count: number) => number | 'never' | Promise<number> = () => 204,
) {
  const received: Received[] = []
  const problems: unknown[] = []
  const secret = { current: '' }
  let count = 0
  const server = createServer((request, response) => {
    let body = ''
    request.on('data', (chunk) => {
      body += chunk
    })
    request.on('end', async () => {
      const answering = answer(count)
      count += 1
      const status = await answering
      try {
        const headers = request.headers as Record<string, string>
        const payload = new Webhook(secret.current).verify(body, headers) as Omit<Received, 'id'>
        if (status !== 'never' && status < 300)
          received.push({ id: headers['webhook-id'] ?? '', ...payload })
      } catch (error) {
        problems.push(error)
      }
      if (status !== 'never') response.writeHead(status).end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/hooks`,
    received,
    problems,
    secret,
    requests: () => count,
    /** Resolves when so many were taken. */
    took: (number: number) =>
      eventually(() => {
        if (received.length < number) throw new Error(`${received.length} of ${number} came`)
        return received
      }),
  }
}
