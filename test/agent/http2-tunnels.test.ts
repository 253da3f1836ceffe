import { readFileSync } from 'node:fs'
import {
  type Client,
  type ClientReadableStream,
  Metadata,
  type ServiceError,
  status,
} from '@grpc/grpc-js'
import { describe, expect, it, onTestFinished } from 'vitest'
import { specOf } from '../helpers/agent-in-folder.ts'
import { type AgentOnGateway, startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { type GrpcHandlers, grpcClient, METHODS, startGrpcServer } from '../helpers/grpc.ts'

const MIB = 1_048_576

interface GrpcSite {
  readonly client: Client
  readonly on: AgentOnGateway
}

/** gRPC's own client and server, with an agent, the real SDK and a gateway between them. */
async function grpcSite(
  handlers: Partial<GrpcHandlers> = {},
  policy: object | null = null,
): Promise<GrpcSite> {
  const server = await startGrpcServer(handlers)
  onTestFinished(() => server.stop())
  const on = await startedOnGateway()
  const spec = specOf('grpc', `localhost:${server.port}`)
  await on.agent.create({ ...spec, policy: policy as never, upstream: { http2: true } })
  const client = clientOf(on, 'grpc.site.test')
  return { client, on }
}

function clientOf(on: AgentOnGateway, host: string): Client {
  const ca = readFileSync(on.addresses.caCertPath)
  const client = grpcClient({ port: on.addresses.https.port, host, ca })
  onTestFinished(() => client.close())
  return client
}

interface Answer {
  readonly message: Buffer | undefined
  readonly error: ServiceError | undefined
  readonly trailers: Metadata | undefined
}

function unary(
  client: Client,
  message: Buffer,
  { metadata = new Metadata(), deadlineMs = 120_000 } = {},
): Promise<Answer> {
  const { path, requestSerialize, responseDeserialize } = METHODS.unary
  const deadline = Date.now() + deadlineMs
  return new Promise((resolve) => {
    let trailers: Metadata | undefined
    client
      .makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        message,
        metadata,
        { deadline },
        (error, got) =>
          setImmediate(() => resolve({ message: got, error: error ?? undefined, trailers })),
      )
      .on('status', ({ metadata: got }) => {
        trailers = got
      })
  })
}

const download = (client: Client, count: number): ClientReadableStream<Buffer> => {
  const { path, requestSerialize, responseDeserialize } = METHODS.download
  return client.makeServerStreamRequest(
    path,
    requestSerialize,
    responseDeserialize,
    Buffer.from(`${count}`),
  )
}

const codeOf = (call: { on(event: 'error', listener: (error: ServiceError) => void): unknown }) =>
  new Promise<number>((resolve) => call.on('error', ({ code }) => resolve(code)))

describe('gRPC through a tunnel with upstream.http2', () => {
  it('makes unary calls, with metadata and trailers both ways', async () => {
    const { client } = await grpcSite({
      unary(call, done) {
        call.sendMetadata(Object.assign(new Metadata(), {}))
        const trailer = new Metadata()
        trailer.set('x-got', call.metadata.get('x-own')[0] ?? '')
        trailer.set('x-sum-bin', Buffer.from([0, 255]))
        done(null, call.request, trailer)
      },
    })
    const metadata = new Metadata()
    metadata.set('x-own', 'mine')
    const { message, error, trailers } = await unary(client, Buffer.from('ping'), { metadata })
    expect([error, String(message)]).toEqual([undefined, 'ping'])
    expect(trailers?.get('x-got')).toEqual(['mine'])
    expect(trailers?.get('x-sum-bin')).toEqual([Buffer.from([0, 255])])
  })

  it('makes many at once, and large ones', async () => {
    const { client } = await grpcSite()
    const answers = await Promise.all(
      Array.from({ length: 300 }, (_, n) => unary(client, Buffer.from(`call ${n}`))),
    )
    expect(answers.map(({ message }) => String(message))).toEqual(
      Array.from({ length: 300 }, (_, n) => `call ${n}`),
    )
    const large = Buffer.alloc(3 * MIB, 'x')
    expect((await unary(client, large)).message?.equals(large)).toBe(true)
  })

  it('streams a thousand messages down, up, and both ways', async () => {
    const { client } = await grpcSite()
    const count = 1_000
    const got: string[] = []
    for await (const message of download(client, count)) got.push(String(message))
    expect(got).toEqual(Array.from({ length: count }, (_, n) => `message ${n + 1}`))

    const { path, requestSerialize, responseDeserialize } = METHODS.upload
    const uploaded = new Promise<string>((resolve, reject) => {
      const call = client.makeClientStreamRequest(
        path,
        requestSerialize,
        responseDeserialize,
        (error, answer) => (error ? reject(error) : resolve(String(answer))),
      )
      for (let n = 0; n < count; n += 1) call.write(Buffer.from(`${n}`))
      call.end()
    })
    expect(await uploaded).toBe(`${count}`)

    const { chat } = METHODS
    const call = client.makeBidiStreamRequest(
      chat.path,
      chat.requestSerialize,
      chat.responseDeserialize,
    )
    let rounds = 0
    call.write(Buffer.from('0'))
    for await (const message of call) {
      expect(String(message)).toBe(`${rounds}`)
      rounds += 1
      if (rounds < count) call.write(Buffer.from(`${rounds}`))
      else call.end()
    }
    expect(rounds).toBe(count)
  })

  it('says what a call has failed of', async () => {
    const { client } = await grpcSite({
      unary: (_call, done) =>
        done({ code: status.NOT_FOUND, details: 'no such thing: 100 %, näh' }),
    })
    const { error } = await unary(client, Buffer.from('x'))
    expect([error?.code, error?.details]).toEqual([status.NOT_FOUND, 'no such thing: 100 %, näh'])
  })

  it('ends a call at its deadline, on both sides', async () => {
    let asked = 0
    let cancelled = 0
    const { client } = await grpcSite({
      unary(call) {
        asked += 1
        call.on('cancelled', () => {
          cancelled += 1
        })
      },
    })
    // On a busy machine a call may be over before it is there.
    for (let deadlineMs = 300; asked === 0; deadlineMs *= 2) {
      const { error } = await unary(client, Buffer.from('x'), { deadlineMs })
      expect(error?.code).toBe(status.DEADLINE_EXCEEDED)
    }
    await eventually(() => expect(cancelled).toBe(asked))
  })

  it('cancels a call, on both sides', async () => {
    let cancelled = 0
    const { client } = await grpcSite({
      download(call) {
        call.write(Buffer.from('first'))
        call.on('cancelled', () => {
          cancelled += 1
        })
      },
    })
    for (let n = 1; n <= 20; n += 1) {
      const call = download(client, 1)
      const code = codeOf(call)
      call.once('data', () => call.cancel())
      expect(await code).toBe(status.CANCELLED)
      await eventually(() => expect(cancelled).toBe(n))
    }
    expect((await unary(client, Buffer.from('x'))).error).toBeUndefined()
  })

  it('gets the errors of the gateway and of policies as a status', async () => {
    const { on } = await grpcSite(
      {},
      {
        on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 403 } }] }],
      },
    )
    const denied = await unary(clientOf(on, 'grpc.site.test'), Buffer.from('x'))
    expect(denied.error?.code).toBe(status.PERMISSION_DENIED)
    const nobody = await unary(clientOf(on, 'none.site.test'), Buffer.from('x'))
    expect(nobody.error?.code).toBe(status.UNAVAILABLE)
    expect(nobody.error?.details).toContain('ERR_NGROK_3200')
  })

  it('is told when its server is not there', async () => {
    const on = await startedOnGateway()
    const spec = { ...specOf('grpc', 'localhost:1'), upstream: { http2: true } }
    await on.agent.create(spec)
    const { error } = await unary(clientOf(on, 'grpc.site.test'), Buffer.from('x'))
    expect(error?.code).toBe(status.UNAVAILABLE)
    expect(error?.details).toContain('ERR_NGROK_8012')
  })
})
