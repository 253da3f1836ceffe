import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

/** Leads to the gateway that is up, or will be: the SDK waits long between its attempts. */
export async function startRelay(target: () => Promise<string>): Promise<string> {
  const sockets = new Set<Socket>()
  const server = createServer(async (socket) => {
    sockets.add(socket.on('error', () => {}))
    const { hostname, port } = new URL(`tcp://${await target()}`)
    const up = connect(Number(port), hostname).on('error', () => socket.destroy())
    sockets.add(up)
    up.once('close', () => socket.destroy())
    socket.once('close', () => up.destroy())
    socket.pipe(up).pipe(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return `localhost:${(server.address() as AddressInfo).port}`
}
