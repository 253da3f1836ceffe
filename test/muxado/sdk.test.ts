import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { type Session as SdkSession, SessionBuilder } from '@ngrok/ngrok'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { createDeferred } from '../../src/base/deferred.ts'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE, Heartbeat } from '../../src/muxado/heartbeat.ts'
import { answer, call, readMessage } from '../../src/muxado/rpc.ts'
import { acceptTyped, openTyped, Session } from '../../src/muxado/session.ts'
import { DEAF, type Stream, type StreamHandler } from '../../src/muxado/stream.ts'
import { eventually } from '../helpers/eventually.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

const StreamType = { auth: 0, bind: 1, unbind: 2, proxy: 3, stop: 5 }
const LIMITS = { maxBytes: 65_536, deadlineMs: 60_000, clock: systemClock }
const AUTH_EXTRA = {
  Version: '1',
  Region: 'test',
  Cookie: '',
  AccountName: 'test',
  SessionDuration: 0,
  PlanName: '',
  Banner: '',
}

type Message = Record<string, unknown>

/** The least that the SDK takes for its service: it grants every Auth and every Bind. */
function answerTo(type: number, { Proto, Opts }: Message): Message {
  if (type === StreamType.auth) return { Version: '3', ClientId: 'client-1', Extra: AUTH_EXTRA }
  if (type !== StreamType.bind) return {}
  return { Id: 'tunnel-1', URL: 'https://x.test', Proto, Opts, Extra: { Token: '' } }
}

/** A proxy stream to the service behind `tunnel-1`; the request rides in its SYN frame. */
function openProxy(session: Session, handler: StreamHandler, request: string): Stream {
  const header = Buffer.from(
    JSON.stringify({
      Id: 'tunnel-1',
      ClientAddr: '192.0.2.1:4711',
      Proto: 'https',
      EdgeType: '3',
      PassthroughTLS: false,
    }),
  )
  const length = Buffer.alloc(8)
  length.writeBigInt64LE(BigInt(header.length))
  const first = Buffer.concat([length, header, Buffer.from(request)])
  return openTyped(session, StreamType.proxy, handler, first)
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** Carries one connection of the SDK until it ends the server's side, and only reads from then on. */
class HalfRelay {
  #sdk: Socket | undefined
  #server: Socket | undefined
  #before = 0

  /** Returns its port. */
  start(to: number): Promise<number> {
    return listen(
      createServer({ allowHalfOpen: true }, (sdk) => {
        this.#sdk = sdk
        this.#server = connect(to, '127.0.0.1').on('error', () => {})
        sdk.on('error', () => {})
        sdk.pipe(this.#server).pipe(sdk)
        onTestFinished(() => {
          this.#server?.destroy()
          sdk.destroy()
        })
      }),
    )
  }

  /** Ends the server's side. */
  end(): void {
    const { sdk } = this
    this.#server?.unpipe(sdk)
    sdk.unpipe(this.#server)
    this.#before = sdk.bytesRead
    sdk.resume().end()
  }

  /** Bytes that the SDK has sent since then. */
  get bytesAfterEnd(): number {
    return this.sdk.bytesRead - this.#before
  }

  private get sdk(): Socket {
    if (!this.#sdk) throw new Error('nobody has connected')
    return this.#sdk
  }
}

/** The SDK, connected to a session of ours over TLS. */
class Connection {
  readonly requests: { type: number; message: Message }[] = []
  /** Round trips of the SDK's own heartbeat, in ms. */
  readonly beats: number[] = []
  stops = 0
  #session: Session | undefined

  get session(): Session {
    if (this.#session === undefined) throw new Error('nobody has connected')
    return this.#session
  }

  /** `through` returns the port that the SDK connects to: the server's own, or one in front of it. */
  async open(through = async (port: number) => port): Promise<SdkSession> {
    const { caPem, certPem, keyPem } = await createTlsFixture()
    const server = createTlsServer({ cert: certPem, key: keyPem }, (socket) => this.#accept(socket))
    const port = await through(await listen(server))
    const builder = new SessionBuilder()
    builder.authtoken('test-token').serverAddr(`localhost:${port}`).caCert(Buffer.from(caPem))
    builder.heartbeatInterval(1) // second
    builder.handleHeartbeat((ms) => {
      this.beats.push(ms)
    })
    builder.handleStopCommand(() => {
      this.stops += 1
    })
    builder.handleDisconnection(() => false)
    const sdk = await builder.connect()
    onTestFinished(async () => {
      await this.session.goAway(ErrorCode.none, 'the test is over')
    })
    return sdk
  }

  #accept(socket: Socket): void {
    const accept = acceptTyped((type, stream) => {
      if (type === HEARTBEAT_STREAM_TYPE) echoHeartbeat(stream)
      else void this.#answer(type, stream)
    })
    this.#session = new Session(socket, { role: 'server', acknowledges: true, accept })
  }

  async #answer(type: number, stream: Stream): Promise<void> {
    const message = (await readMessage(stream, LIMITS)) as Message
    this.requests.push({ type, message })
    answer(stream, answerTo(type, message))
  }
}

describe('the real SDK over our session', () => {
  it('authenticates, binds, unbinds, and frees the slot of each call', async () => {
    const connection = new Connection()
    const sdk = await connection.open()
    const listener = await sdk.httpEndpoint().domain('x.test').listen()
    expect(listener.url()).toBe('https://x.test')
    await listener.close()
    expect(connection.requests.slice(0, 2)).toMatchObject([
      { type: StreamType.auth, message: { Extra: { AuthToken: 'test-token' } } },
      { type: StreamType.bind, message: { Proto: 'https', Opts: { Domain: 'x.test' } } },
    ])
    // On a busy machine the SDK asks for it twice now and then.
    const ends = connection.requests.slice(2)
    expect(new Set(ends.map((it) => JSON.stringify(it)))).toEqual(
      new Set([JSON.stringify({ type: StreamType.unbind, message: { Id: 'tunnel-1' } })]),
    )
    // What is left is the SDK's heartbeat.
    await eventually(() => expect(connection.session.freeSlots).toBe(447))
  })

  it('keeps heartbeats both ways', async () => {
    const connection = new Connection()
    await connection.open()
    const latencies: number[] = []
    let missed = 0
    const heartbeat = new Heartbeat({
      session: connection.session,
      clock: systemClock,
      intervalMs: 20,
      toleranceMs: 5_000,
      onLatency: (ms) => latencies.push(ms),
      onMissed: () => {
        missed += 1
      },
    })
    heartbeat.start()
    onTestFinished(() => heartbeat.stop())
    await eventually(() => {
      expect(latencies.length).toBeGreaterThan(2)
      expect(connection.beats.length).toBeGreaterThan(1)
    })
    expect(missed).toBe(0)
    expect(Math.min(...latencies)).toBeGreaterThan(0)
  })

  it('lets the SDK free the stream of each heartbeat: it dies at the 513th that is open', async () => {
    const connection = new Connection()
    await connection.open()
    let echoes = 0
    const heartbeat = new Heartbeat({
      ...{ session: connection.session, clock: systemClock },
      ...{ intervalMs: 1, toleranceMs: 60_000 },
      onLatency: () => {
        echoes += 1
      },
      onMissed() {},
    })
    heartbeat.start()
    onTestFinished(() => heartbeat.stop())
    await eventually(() => expect(echoes).toBeGreaterThan(520))
  })

  /** An SDK whose connection has ended after one heartbeat of ours. */
  async function endedAfter(beat: (session: Session, onEcho: () => void) => void) {
    const connection = new Connection()
    const relay = new HalfRelay()
    await connection.open((port) => relay.start(port))
    const echoed = createDeferred<void>()
    beat(connection.session, echoed.resolve)
    await echoed.promise
    // Its answer shows that the SDK has read everything before the call.
    await call(connection.session, StreamType.stop, {}, LIMITS)
    relay.end()
    return relay
  }

  it('leaves the SDK no heartbeat to fill with zeros when the connection ends', async () => {
    const ours = await endedAfter((session, onLatency) => {
      const heartbeat = new Heartbeat({
        ...{ session, clock: systemClock, intervalMs: 60_000, toleranceMs: 60_000 },
        ...{ onLatency, onMissed: () => {} },
      })
      heartbeat.start()
      onTestFinished(() => heartbeat.stop())
    })
    // A heartbeat that stays open shows the fault, and begins later. On a busy machine the SDK can notice the end
    // of the connection before it has sent much: then the next connection shows it.
    await eventually(async () => {
      const kept = await endedAfter((session, onData) => {
        openTyped(session, HEARTBEAT_STREAM_TYPE, { ...DEAF, onData }, Buffer.from('beat'))
      })
      await eventually(() => expect(kept.bytesAfterEnd).toBeGreaterThan(10_000), 5_000)
    })
    expect(ours.bytesAfterEnd).toBeLessThan(1_000)
  })

  it('calls a command of the SDK and reads its answer', async () => {
    const connection = new Connection()
    await connection.open()
    const response = await call(connection.session, StreamType.stop, {}, LIMITS)
    expect(response).toEqual({})
    await eventually(() => expect(connection.stops).toBe(1))
    await eventually(() => expect(connection.session.freeSlots).toBe(447))
  })

  it('proxies one request, then another on the same stream', async () => {
    const service = createHttpServer((request, response) => response.end(`got ${request.url}`))
    const port = await listen(service)
    const connection = new Connection()
    const sdk = await connection.open()
    await sdk.httpEndpoint().listenAndForward(`http://localhost:${port}`)
    const handler = new RecordingHandler()
    const stream = openProxy(
      connection.session,
      handler,
      'GET /one HTTP/1.1\r\nhost: x.test\r\n\r\n',
    )
    await eventually(() => expect(handler.events.join()).toContain('got /one'))
    stream.write(Buffer.from('GET /two HTTP/1.1\r\nhost: x.test\r\nconnection: close\r\n\r\n'))
    await eventually(() => expect(handler.events.at(-1)).toBe('end'))
    expect(handler.events.join()).toContain('got /two')
    stream.end()
    expect(handler.events.at(-1)).toBe('close')
  })

  it('lets go of aborted downloads whose window is full', async () => {
    const service = createServer((socket) => {
      const send = () => {
        while (!socket.destroyed && socket.write(Buffer.alloc(65_536))) {}
      }
      socket.on('error', () => {})
      socket.on('drain', send)
      socket.once('data', send)
    })
    const open = new Set<Socket>()
    service.on('connection', (socket) => {
      open.add(socket)
      socket.on('close', () => open.delete(socket))
    })
    const port = await listen(service)
    const connection = new Connection()
    const sdk = await connection.open()
    await sdk.httpEndpoint().listenAndForward(`http://localhost:${port}`)
    const received = Array.from({ length: 40 }, () => 0)
    const streams = received.map((_, index) => {
      const handler = Object.assign(new RecordingHandler(), {
        onData: (chunk: Buffer) => {
          received[index] = (received[index] ?? 0) + chunk.length
        },
      })
      return openProxy(connection.session, handler, 'GET / HTTP/1.1\r\n\r\n')
    })
    await eventually(() => expect(received.every((bytes) => bytes === 262_144)).toBe(true))
    expect(open.size).toBe(40)
    for (const stream of streams) stream.retire()
    // The SDK closes its connection to the service when it lets go of the slot.
    await eventually(() => expect(open.size).toBe(0))
    await eventually(() => expect(connection.session.freeSlots).toBe(447))
  })

  it('lets go of aborted long polls at our FIN', async () => {
    const service = createHttpServer(() => {})
    const port = await listen(service)
    const connection = new Connection()
    const sdk = await connection.open()
    await sdk.httpEndpoint().listenAndForward(`http://localhost:${port}`)
    for (let round = 0; round < 3; round++) {
      await eventually(() => expect(connection.session.freeSlots).toBe(447))
      const asked = Array.from({ length: 200 }, () =>
        openProxy(connection.session, new RecordingHandler(), 'GET / HTTP/1.1\r\nhost: x\r\n\r\n'),
      )
      expect(connection.session.freeSlots).toBe(247)
      for (const stream of asked) stream.retire()
    }
    const handler = new RecordingHandler()
    openProxy(connection.session, handler, 'not http\r\n\r\n')
    await eventually(() => expect(handler.events.join()).toContain('400 Bad Request'))
  })
})
