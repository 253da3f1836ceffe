/** Services of a device that do what services do; each answers its port and is closed with the running test. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { createServer as createTlsServer } from 'node:tls'
import { onTestFinished } from 'vitest'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

export async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket.on('error', () => {})))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return (server.address() as AddressInfo).port
}

export const serve = (onSocket: (socket: Socket) => void) => listen(createServer(onSocket))
export const afterRequest = (text: string) => () =>
  serve((socket) => void socket.once('data', () => socket.end(text)))

export async function serveTlsOnly(): Promise<number> {
  const { certPem, keyPem } = await createTlsFixture()
  const server = createTlsServer({ cert: certPem, key: keyPem }, (socket) => socket.end('secret'))
  server.on('tlsClientError', () => {})
  return listen(server)
}

export const answerAfter = (ms: number) =>
  listen(createHttpServer((_, response) => void setTimeout(() => response.end('hello'), ms)))

export const serveHalfBody = () =>
  listen(
    createHttpServer((_, response) => {
      response.writeHead(200, { 'content-length': 100 })
      response.write('half', () => response.destroy())
    }),
  )

/** A process that stands still, with as many connections as its system keeps for it. */
export async function fullBacklog(): Promise<number> {
  const program =
    'const s=require("net").createServer().listen({port:0,host:"127.0.0.1",backlog:1},' +
    '()=>console.log(s.address().port))'
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [text] = await once(child.stdout, 'data')
  child.kill('SIGSTOP')
  const port = Number(text)
  for (let isTaken = true; isTaken; ) {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    onTestFinished(() => void socket.destroy())
    const connected = once(socket, 'connect').then(() => true)
    const late = sleep(500).then(nextTurn)
    // A busy machine may have taken that long to look whether it has connected.
    isTaken = await Promise.race([connected, late.then(() => !socket.connecting)])
  }
  return port
}
