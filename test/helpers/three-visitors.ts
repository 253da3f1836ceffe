import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { Agent as HttpAgent, type IncomingHttpHeaders, request as overHttp } from 'node:http'
import { connect as connectHttp2, type IncomingHttpHeaders as Http2Headers } from 'node:http2'
import { Agent as HttpsAgent, request as overHttps } from 'node:https'
import type { AddressInfo, Server, Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import { connectSdk, inTime, type RunningGateway, startGateway } from './running-gateway.ts'

export const HOST = 'a.site.test'

export interface Answer {
  /** 0: the connection ended without an answer. */
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** How the client has seen it end. */
  readonly end: 'whole' | 'broken'
}

export interface Asked {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string | undefined
  /** Of HTTP/2, in place of the host. */
  readonly authority?: string
  /** The head of the answer has come. */
  readonly onHead?: () => void
  /** All of the body so far. */
  readonly onData?: (text: string) => unknown
}

export interface Visitor {
  ask(asked?: Asked): Promise<Answer>
}

/** A gateway, and a tunnel of the real SDK to a service that is about to listen. */
export async function siteFor(server: Server, policy?: string): Promise<RunningGateway> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const running = await startGateway()
  const sdk = await connectSdk(running)
  const endpoint = sdk.httpEndpoint().domain(HOST)
  if (policy !== undefined) endpoint.trafficPolicy(policy)
  const listener = await inTime(endpoint.listen())
  listener.forward(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).catch(() => {})
  return running
}

/** One connection, which is kept. */
function overHttp1({ addresses }: RunningGateway, isSecure: boolean): Visitor {
  const options = { keepAlive: true, maxSockets: 1 }
  const agent = isSecure ? new HttpsAgent(options) : new HttpAgent(options)
  onTestFinished(() => agent.destroy())
  const { port } = isSecure ? (addresses.https as { port: number }) : addresses.http
  const ca = readFileSync(addresses.caCertPath)
  const ask = ({ method = 'GET', headers = {}, body, onHead, onData }: Asked = {}) =>
    new Promise<Answer>((resolve) => {
      const length = body === undefined ? {} : { 'content-length': String(body.length) }
      const all = { host: HOST, ...length, ...headers }
      const target = { host: '127.0.0.1', port, method, agent, servername: HOST, ca, headers: all }
      let answer: Answer = { status: 0, headers: {}, text: '', end: 'broken' }
      const request = (isSecure ? overHttps : overHttp)(target)
      request.on('response', (response) => {
        answer = { ...answer, status: response.statusCode ?? 0, headers: response.headers }
        onHead?.()
        response.on('data', (chunk) => {
          answer = { ...answer, text: answer.text + chunk }
          onData?.(answer.text)
        })
        response.on('error', () => resolve(answer))
        response.on('end', () => resolve({ ...answer, end: 'whole' }))
      })
      request.on('error', () => resolve(answer))
      request.end(body)
    })
  return { ask }
}

function overHttp2({ addresses }: RunningGateway): Visitor {
  const session = connectHttp2(`https://${HOST}:${addresses.https?.port}`, {
    servername: HOST,
    ca: readFileSync(addresses.caCertPath),
    lookup: (_host: string, options: { all?: boolean }, done: (...args: unknown[]) => void) =>
      options.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4),
  } as never)
  onTestFinished(() => session.destroy())
  session.on('error', () => {})
  const ask = ({
    method = 'GET',
    headers = {},
    body,
    authority = HOST,
    onHead,
    onData,
  }: Asked = {}) =>
    new Promise<Answer>((resolve) => {
      const stream = session.request(
        { ':path': '/', ':method': method, ':authority': authority, ...headers },
        { endStream: body === undefined },
      )
      let text = ''
      let head: Http2Headers = {}
      stream.on('response', (fields) => {
        head = fields
        onHead?.()
      })
      stream.on('data', (chunk) => {
        text += chunk
        onData?.(text)
      })
      stream.on('error', () => {})
      stream.on('close', () => {
        const end = stream.rstCode === 0 && head[':status'] !== undefined ? 'whole' : 'broken'
        resolve({ status: Number(head[':status'] ?? 0), headers: head, text, end })
      })
      if (body !== undefined) stream.end(body)
    })
  return { ask }
}

/** Name, and how the visitor comes to a site. */
export const VISITORS = [
  ['HTTP/1.1', (running: RunningGateway) => overHttp1(running, false)],
  ['HTTPS', (running: RunningGateway) => overHttp1(running, true)],
  ['HTTP/2', overHttp2],
] as const
