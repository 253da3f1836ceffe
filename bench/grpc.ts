/**
 * gRPC's own client and server, by themselves and with ingress, tunnel and the real SDK between them,
 * in turns within one run: calls, streams, ping-pongs on one stream, cancellations. Ends with 1 when
 * a call is lost, or the ping-pongs take 100 ms more than without the tunnel.
 */
import { readFileSync } from 'node:fs'
import type { Client } from '@grpc/grpc-js'
import { ECHO, grpcClient, METHODS, startGrpcServer } from '../test/helpers/grpc.ts'
import { Site } from '../test/helpers/site.ts'
import { cpuMs, median, printTable, progress, scratchFolder } from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5)
const CALLS = Number(process.env.BENCH_CALLS ?? 10_000)
const AT_ONCE = 50
const IN_TURN = 300
const MESSAGES = 1_000
const PING_PONGS = 100
const CANCELS = 500
const AIM_MS = 100
const HOST = 'grpc.site.localhost'
const MESSAGE = Buffer.from('a small message')

let open = 0
const server = await startGrpcServer({
  // What nobody answers, to be cancelled; all else echoes.
  download(call) {
    if (String(call.request) !== 'hang') {
      ECHO.download(call)
      return
    }
    open += 1
    call.write(MESSAGE)
    call.once('cancelled', () => {
      open -= 1
    })
  },
})
const site = await Site.start(scratchFolder())
const answer = await site.call('POST', '/tunnels', {
  protocol: 'http',
  forwards_to: `localhost:${server.port}`,
  domain: HOST,
  policy: { on_http_request: [], on_http_response: [] },
  upstream: { http2: true },
})
if (!answer.ok) throw new Error(`no tunnel: ${await answer.text()}`)
await site.online(1)

const bare = grpcClient({ port: server.port })
const tunnelled = grpcClient({
  port: Number(new URL(site.ready.ingress_https).port),
  host: HOST,
  ca: readFileSync(site.ready.ca_cert),
})

function call(client: Client): Promise<void> {
  const { path, requestSerialize, responseDeserialize } = METHODS.unary
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(path, requestSerialize, responseDeserialize, MESSAGE, (error, got) => {
      if (error) reject(error)
      else if (!got?.equals(MESSAGE)) reject(new Error('another message came back'))
      else resolve()
    })
  })
}

function downloadOf(client: Client, request: string) {
  const { path, requestSerialize, responseDeserialize } = METHODS.download
  return client.makeServerStreamRequest(
    path,
    requestSerialize,
    responseDeserialize,
    Buffer.from(request),
  )
}

async function callsAtOnce(client: Client): Promise<void> {
  let left = CALLS
  const worker = async () => {
    for (; left > 0; left -= 1) await call(client)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

async function callsInTurn(client: Client): Promise<void> {
  for (let n = 0; n < IN_TURN; n += 1) await call(client)
}

async function streamDown(client: Client): Promise<void> {
  let count = 0
  for await (const _message of downloadOf(client, String(MESSAGES))) count += 1
  if (count !== MESSAGES) throw new Error(`${count} of ${MESSAGES} messages came`)
}

function streamUp(client: Client): Promise<void> {
  const { path, requestSerialize, responseDeserialize } = METHODS.upload
  return new Promise((resolve, reject) => {
    const up = client.makeClientStreamRequest(
      path,
      requestSerialize,
      responseDeserialize,
      (error, got) => {
        if (error) reject(error)
        else if (String(got) === String(MESSAGES)) resolve()
        else reject(new Error(`${got} of ${MESSAGES} messages came`))
      },
    )
    for (let n = 0; n < MESSAGES; n += 1) up.write(MESSAGE)
    up.end()
  })
}

async function pingPong(client: Client): Promise<void> {
  const { path, requestSerialize, responseDeserialize } = METHODS.chat
  const chat = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize)
  let rounds = 0
  chat.write(MESSAGE)
  for await (const _message of chat) {
    rounds += 1
    if (rounds < PING_PONGS) chat.write(MESSAGE)
    else chat.end()
  }
  if (rounds !== PING_PONGS) throw new Error(`${rounds} of ${PING_PONGS} ping-pongs`)
}

async function cancelled(client: Client): Promise<void> {
  for (let n = 0; n < CANCELS; n += 1) {
    const stream = downloadOf(client, 'hang')
    await new Promise<void>((resolve) => {
      stream.once('data', () => stream.cancel())
      stream.once('error', () => resolve())
    })
  }
  while (open > 0) await new Promise((resolve) => setTimeout(resolve, 1))
}

interface Task {
  readonly name: string
  readonly run: (client: Client) => Promise<void>
  readonly bare: number[]
  readonly tunnelled: number[]
  readonly cpu: number[]
}

const task = (name: string, run: Task['run']): Task => ({
  name,
  run,
  bare: [],
  tunnelled: [],
  cpu: [],
})
const pingPongs = task(`${PING_PONGS} ping-pongs on one stream`, pingPong)
const tasks = [
  task(`${CALLS} calls, ${AT_ONCE} at once`, callsAtOnce),
  task(`${IN_TURN} calls, one by one`, callsInTurn),
  task(`${MESSAGES} messages down`, streamDown),
  task(`${MESSAGES} messages up`, streamUp),
  pingPongs,
  task(`${CANCELS} calls, cancelled`, cancelled),
]

async function timeOf(work: Promise<void>): Promise<number> {
  const startedAt = performance.now()
  await work
  return performance.now() - startedAt
}

for (let round = 0; round <= ROUNDS; round += 1) {
  for (const each of tasks) {
    // The first round warms the compilers up and is not counted.
    progress(`${round === 0 ? 'warm-up' : `round ${round} of ${ROUNDS}`}: ${each.name}`)
    const alone = await timeOf(each.run(bare))
    const before = cpuMs(site.gateway.pid)
    const through = await timeOf(each.run(tunnelled))
    if (round === 0) continue
    each.bare.push(alone)
    each.tunnelled.push(through)
    each.cpu.push(cpuMs(site.gateway.pid) - before)
  }
}
progress('')
const moreOf = (each: Task) => median(each.tunnelled) - median(each.bare)
printTable(
  ['what', 'by themselves ms', 'through the tunnel ms', 'more ms', 'gateway CPU ms'],
  tasks.map((each) => [
    each.name,
    median(each.bare).toFixed(1),
    median(each.tunnelled).toFixed(1),
    moreOf(each).toFixed(1),
    median(each.cpu).toFixed(0),
  ]),
)
bare.close()
tunnelled.close()
server.stop()
await site.stop()
process.exit(moreOf(pingPongs) < AIM_MS ? 0 : 1)
