import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'
import { eventually } from './eventually.ts'

/** A chat service on a port of its own, which takes any POST; `answer`: status and body of the n-th, sent after a promise. */
export async function startChat(
  answer: (
    count: number,
  ) => readonly [status: number, body?: string, after?: Promise<void>] = () => [200],
) {
  const posts: { readonly path: string; readonly type: string; readonly body: string }[] = []
  let count = 0
  const server = createServer((request, response) => {
    let body = ''
    request.on('data', (chunk) => {
      body += chunk
    })
    request.on('end', async () => {
      const [status, text = '', after] = answer(count)
      count += 1
      await after
      const { url: path = '', headers } = request
      if (status < 300) posts.push({ path, type: headers['content-type'] ?? '', body })
      response.writeHead(status).end(text)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/services/secret-key`,
    posts,
    attempts: () => count,
    /** Titles and texts that came, for the kind `webhook`. */
    messages: () => posts.map(({ body }) => JSON.parse(body) as { title: string; text: string }),
    /** Resolves when so many posts were taken. */
    took: (number: number) =>
      eventually(() => {
        if (posts.length < number) throw new Error(`${posts.length} of ${number} posts came`)
      }),
  }
}
