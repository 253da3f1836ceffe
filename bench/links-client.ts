/**
 * A visitor of `links.ts`, as a process: each line on stdin is a task, each line on stdout its
 * milliseconds. Connections are open and used once before the time begins.
 */
import { once } from 'node:events'
import { Agent as PlainAgent, request as plainRequest } from 'node:http'
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2'
import { Agent as SecureAgent, request as secureRequest } from 'node:https'
import { createInterface } from 'node:readline'
import { connect as tlsConnect } from 'node:tls'
import { grpcClient, METHODS } from '../test/helpers/grpc.ts'

/** What a visitor of a browser has: Node's own windows of 64 KiB would be what is measured. */
const CLIENT_WINDOW = 6_291_456
const PIECE = Buffer.alloc(65_536, 'upload')

/** Where a transfer goes; with `ca` through TLS, and without to the service itself. */
export interface Target {
  readonly address: string
  readonly port: number
  readonly host: string
  readonly ca?: string
}

export type TaskKind = 'small' | 'down' | 'up' | 'http2-down' | 'http2-up' | 'grpc'

export interface Task {
  readonly kind: TaskKind
  readonly target: Target
  /** Of the transfer, or how many small requests. */
  readonly amount: number
}

async function timeOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

async function inHttp1({ kind, target, amount }: Task): Promise<number[]> {
  const { address, port, host, ca } = target
  const kept = { keepAlive: true, maxSockets: 1 }
  const agent = ca ? new SecureAgent(kept) : new PlainAgent(kept)
  const options = {
    host: address,
    port,
    agent,
    headers: { host },
    ...(ca && { ca, servername: host }),
  }
  const ask = (path: string, bytes?: number) =>
    new Promise<void>((resolve, reject) => {
      const length = bytes === undefined ? {} : { 'content-length': bytes }
      const send = ca ? secureRequest : plainRequest
      const request = send(
        {
          ...options,
          path,
          method: bytes === undefined ? 'GET' : 'PUT',
          headers: { host, ...length },
        },
        (response) => {
          if (response.statusCode !== 200) reject(new Error(`${path}: ${response.statusCode}`))
          response.resume().on('end', resolve).on('error', reject)
        },
      )
      request.on('error', reject)
      if (bytes === undefined) request.end()
      else void sendTo(request, bytes)
    })
  await ask('/')
  const times: number[] = []
  if (kind === 'small') {
    for (let n = 0; n < amount; n += 1) times.push(await timeOf(() => ask('/')))
  } else if (kind === 'up') times.push(await timeOf(() => ask('/', amount)))
  else times.push(await timeOf(() => ask(`/down?${amount}`)))
  agent.destroy()
  return times
}

async function sendTo(
  stream: {
    write(chunk: Buffer): boolean
    end(): void
    once(event: 'drain', on: () => void): void
  },
  bytes: number,
): Promise<void> {
  for (let left = bytes; left > 0; left -= PIECE.length) {
    const hasRoom = stream.write(PIECE.subarray(0, left))
    if (!hasRoom) await new Promise<void>((resolve) => stream.once('drain', resolve))
  }
  stream.end()
}

async function openSession({ address, port, host, ca }: Target): Promise<ClientHttp2Session> {
  const settings = { initialWindowSize: CLIENT_WINDOW }
  const session = ca
    ? connect(`https://${host}:${port}`, {
        settings,
        createConnection: () =>
          tlsConnect({ host: address, port, servername: host, ca, ALPNProtocols: ['h2'] }),
      })
    : connect(`http://${address}:${port}`, { settings })
  await once(session, 'connect')
  session.setLocalWindowSize(CLIENT_WINDOW)
  return session
}

async function inHttp2({ kind, target, amount }: Task): Promise<number[]> {
  const session = await openSession(target)
  const authority = { ':authority': target.host }
  const whole = async (stream: ClientHttp2Stream) => {
    stream.resume()
    const [headers] = await once(stream, 'response')
    if (headers[':status'] !== 200) throw new Error(`HTTP/2: ${headers[':status']}`)
    await once(stream, 'end')
  }
  await whole(session.request({ ...authority, ':path': '/' }))
  const ms = await timeOf(async () => {
    if (kind === 'http2-down') {
      await whole(session.request({ ...authority, ':path': `/down?${amount}` }))
      return
    }
    const stream = session.request({ ...authority, ':method': 'PUT', ':path': '/' })
    void sendTo(stream, amount)
    await whole(stream)
  })
  session.destroy()
  return [ms]
}

/** So many bytes up and down at the same time, as messages of 64 KiB. */
async function inGrpc({ target, amount }: Task): Promise<number[]> {
  const { address, port, host, ca } = target
  const client = grpcClient({ address, port, host, ...(ca && { ca: Buffer.from(ca) }) })
  const { path, requestSerialize, responseDeserialize } = METHODS.chat
  const exchange = async (bytes: number) => {
    const chat = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize)
    void sendTo(chat as never, bytes)
    for await (const message of chat) if (message.length === 0) throw new Error('an empty message')
  }
  await exchange(1)
  const ms = await timeOf(() => exchange(amount))
  client.close()
  return [ms]
}

const RUN: Record<TaskKind, (task: Task) => Promise<number[]>> = {
  small: inHttp1,
  down: inHttp1,
  up: inHttp1,
  'http2-down': inHttp2,
  'http2-up': inHttp2,
  grpc: inGrpc,
}

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line) as Task
  console.log(JSON.stringify(await RUN[task.kind](task)))
}
process.exit(0)
