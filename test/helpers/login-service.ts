import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

export const TYPE_1 = 'NTLM TlRMTVNTUAABAAAA'
export const TYPE_2 = 'NTLM TlRMTVNTUAACAAAA'
export const TYPE_3 = 'NTLM TlRMTVNTUAADAAAA'

/** A service that logs TCP connections in, in two steps as NTLM does: the user is in `x-user`. */
export async function startLoginService() {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    let text = ''
    let user: string | undefined
    let begun: string | undefined
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      for (let end = text.indexOf('\r\n\r\n'); end !== -1; end = text.indexOf('\r\n\r\n')) {
        const head = text.slice(0, end)
        text = text.slice(end + 4)
        const wanted = /^x-user: (.*)$/im.exec(head)?.[1]
        const credentials = /^authorization: (.*)$/im.exec(head)?.[1]
        if (credentials === TYPE_1) begun = wanted
        if (credentials === TYPE_3 && begun === wanted) user = wanted
        const answer =
          credentials === TYPE_1
            ? `WWW-Authenticate: ${TYPE_2}`
            : 'WWW-Authenticate: Negotiate, NTLM'
        const isIn = user !== undefined && credentials !== TYPE_1
        const body = isIn ? `you are ${user}` : 'who are you'
        const status = isIn ? '200 OK' : `401 Unauthorized\r\n${answer}`
        socket.write(`HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { port: (server.address() as { port: number }).port, sockets }
}
