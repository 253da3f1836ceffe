import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, isIPv6, type Server, type Socket } from 'node:net'
import { StartError } from '../../../base/app-error.ts'
import type { Clock } from '../../../base/clock.ts'
import type { Limiter } from '../../../base/limiter.ts'
import { formatListenAddress, type ListenAddress } from '../../../base/listen-address.ts'
import type { Logger } from '../../../base/logger.ts'
import type { DnsTransport } from './dns-answer.ts'

interface FixedWindowOptions {
  /** Events per key and window. */
  readonly capacity: number
  readonly windowMs: number
  /** Keys per window. Further keys are refused, so that memory is bounded. */
  readonly maxKeys: number
  readonly clock: Clock
}

/**
 * Counts per key in consecutive windows: cheap, but allows up to twice the limit across a window boundary.
 */
export class FixedWindow implements Limiter {
  readonly #options: FixedWindowOptions
  readonly #counts = new Map<string, number>()
  #since = Number.NEGATIVE_INFINITY

  constructor(options: FixedWindowOptions) {
    this.#options = options
  }

  tryCount(key: string): number {
    const { capacity, windowMs, maxKeys, clock } = this.#options
    const now = clock.monotonic()
    if (now - this.#since >= windowMs) {
      this.#since = now
      this.#counts.clear()
    }
    const count = this.#counts.get(key) ?? 0
    const isFull = count >= capacity || (count === 0 && this.#counts.size >= maxKeys)
    if (isFull) return Math.ceil(this.#since + windowMs - now)
    this.#counts.set(key, count + 1)
    return 0
  }
}

/** Queries with all common options are far smaller. */
const MAX_QUESTION_BYTES = 512
const TCP_CONNECTIONS = 64
/** Maximum duration of a TCP connection, for all its queries. */
const TCP_LIFE_MS = 10_000
const TCP_QUESTIONS = 32
const ANSWERS_PER_ADDRESS = 100
const ANSWERS_WINDOW_MS = 1_000
const ADDRESSES = 10_000
/** UDP queries whose answers are pending. Further queries are dropped. */
const MAX_WAITING = 1_000

interface DnsListenerOptions {
  readonly listen: ListenAddress
  /** Undefined: no answer is sent. Never rejects. */
  readonly answer: (
    message: Buffer,
    transport: DnsTransport,
  ) => Buffer | undefined | Promise<Buffer | undefined>
  readonly clock: Clock
  readonly log: Logger
}

/** DNS over UDP and TCP on one port (RFC 1035 section 4.2, RFC 7766). */
export class DnsListener {
  readonly #options: DnsListenerOptions
  readonly #answers: FixedWindow
  readonly #sockets = new Set<Socket>()
  #tcp: Server | undefined
  #udp: UdpSocket | undefined
  #waiting = 0

  constructor(options: DnsListenerOptions) {
    this.#options = options
    // Limits answers per address, because the sender of a UDP packet is easily forged.
    this.#answers = new FixedWindow({
      capacity: ANSWERS_PER_ADDRESS,
      windowMs: ANSWERS_WINDOW_MS,
      maxKeys: ADDRESSES,
      clock: options.clock,
    })
  }

  /** Listens and returns the actual address. Throws a StartError if the address is taken. */
  async start(): Promise<ListenAddress> {
    const { listen, log } = this.#options
    try {
      const port = await this.#startTcp(listen)
      await this.#startUdp({ ...listen, port })
      log.info({ address: formatListenAddress({ ...listen, port }) }, 'dns listener started')
      return { ...listen, port }
    } catch (error) {
      await this.stop()
      throw new StartError(
        `The DNS server cannot listen on ${formatListenAddress(listen)}: ${(error as Error).message}.`,
        { cause: error },
      )
    }
  }

  async stop(): Promise<void> {
    const [tcp, udp] = [this.#tcp, this.#udp]
    this.#tcp = undefined
    this.#udp = undefined
    for (const socket of this.#sockets) socket.destroy()
    await Promise.all([
      udp && new Promise<void>((resolve) => udp.close(resolve)),
      tcp?.listening && new Promise((resolve) => tcp.close(resolve)),
    ])
  }

  async #startTcp({ host, port }: ListenAddress): Promise<number> {
    const server = createServer((socket) => this.#serveTcp(socket))
    this.#tcp = server
    server.maxConnections = TCP_CONNECTIONS
    server.listen(port, host)
    await once(server, 'listening')
    server.on('error', (error) => this.#options.log.error({ err: error }, 'dns over tcp failed'))
    const address = server.address()
    return typeof address === 'object' && address ? address.port : port
  }

  async #startUdp({ host, port }: ListenAddress): Promise<void> {
    const socket = createSocket(isIPv6(host) ? 'udp6' : 'udp4')
    this.#udp = socket
    socket.bind(port, host)
    await once(socket, 'listening')
    socket.on('error', (error) => this.#options.log.error({ err: error }, 'dns over udp failed'))
    socket.on('message', (message, { address, port }) => {
      if (message.length > MAX_QUESTION_BYTES || this.#answers.tryCount(address) > 0) return
      if (this.#waiting < MAX_WAITING) void this.#answerUdp(socket, message, { address, port })
    })
  }

  async #answerUdp(
    socket: UdpSocket,
    message: Buffer,
    { address, port }: { readonly address: string; readonly port: number },
  ): Promise<void> {
    this.#waiting += 1
    const answer = await this.#options.answer(message, 'udp')
    this.#waiting -= 1
    // Errors are ignored: the sender may be forged, and no caller can use them.
    if (answer && this.#udp === socket) socket.send(answer, port, address, () => {})
  }

  #serveTcp(socket: Socket): void {
    this.#sockets.add(socket)
    const timer = setTimeout(() => socket.destroy(), TCP_LIFE_MS)
    socket.once('close', () => {
      clearTimeout(timer)
      this.#sockets.delete(socket)
    })
    socket.on('error', () => {})
    let rest: Buffer = Buffer.alloc(0)
    let questions = 0
    socket.on('data', (chunk) => {
      rest = Buffer.concat([rest, chunk])
      while (rest.length >= 2 && !socket.destroyed) {
        const end = 2 + rest.readUInt16BE(0)
        questions += rest.length < end ? 0 : 1
        if (end > 2 + MAX_QUESTION_BYTES || questions > TCP_QUESTIONS) {
          socket.destroy()
          return
        }
        if (rest.length < end) return
        void this.#answerTcp(socket, rest.subarray(2, end))
        rest = rest.subarray(end)
      }
    })
  }

  /** RFC 7766 section 6.2.1.1: answers may be sent in another order than the queries. */
  async #answerTcp(socket: Socket, message: Buffer): Promise<void> {
    const answer = await this.#options.answer(message, 'tcp')
    if (!answer) {
      socket.destroy()
      return
    }
    const length = Buffer.alloc(2)
    length.writeUInt16BE(answer.length)
    socket.write(Buffer.concat([length, answer]))
  }
}
