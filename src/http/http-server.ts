import { once } from 'node:events'
import { chmodSync, renameSync, rmSync, statSync } from 'node:fs'
import type { RequestListener, Server, ServerResponse } from 'node:http'
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net'
import { basename, dirname, join } from 'node:path'
import type { Duplex } from 'node:stream'
import { StartError } from '../base/app-error.ts'
import { DeadlineError, withDeadline } from '../base/deadline.ts'
import {
  formatListenAddress,
  type ListenAddress,
  listenOn,
  listenProblem,
} from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import {
  ConnectionShares,
  type ConnectionStage,
  type SharedConnection,
} from '../base/net/connection-shares.ts'
import { createServer } from '../base/net/node-http.ts'
import { answerMalformedRequest } from './error-response.ts'
import { DueResponses } from './request-gate.ts'

/** A client's connection to an API, as its listener counts it. */
export class HttpConnection implements SharedConnection {
  readonly #socket: Socket
  /** With the time since which each is due. */
  readonly #due = new Map<ServerResponse, number>()
  #idleSince = performance.now()

  constructor(socket: Socket) {
    this.#socket = socket
  }

  /** Whoever has sent a request as a whole is worked for, until all of the answer is written. */
  get stage(): ConnectionStage {
    if (this.#due.size === 0) return 'idle'
    const isBusy = [...this.#due.keys()].some(
      ({ req, writableEnded }) => req.complete && !writableEnded,
    )
    return isBusy ? 'busy' : 'awaited'
  }

  get idleSince(): number {
    return this.#idleSince
  }

  /** Counts a request as under way until its response is closed. */
  track(response: ServerResponse): void {
    this.#due.set(response, performance.now())
    response.once('close', () => {
      this.#due.delete(response)
      this.#idleSince = performance.now()
    })
  }

  /** It waits for an answer that has not begun, for no longer than `ms`. */
  isPatient(ms: number): boolean {
    const since = performance.now() - ms
    return [...this.#due].some(
      ([{ req, headersSent }, at]) => req.complete && !headersSent && at > since,
    )
  }

  yieldPlace(): void {
    this.#socket.destroy()
  }
}

/** Deadlines of a client, in milliseconds. */
const TIMEOUTS = {
  headersMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 5_000,
  /** Without a byte either way: for a client that stops reading its answer. */
  silenceMs: 60_000,
  /** The same while it waits for an answer that is still worked on: no request takes that long. */
  workMs: 15 * 60_000,
  /** How often the first two are enforced; Node's own 30 s would be too late. */
  checkMs: 2_000,
}
const MAX_CONNECTIONS = 256
const MAX_HEADERS = 100
const DRAIN_MS = 5_000
/** Clients use a kept connection no longer than `keepAliveMs` less a second. */
const LEFT_MS = 4_500
/** `sun_path` of unix(7) without its closing zero; Node cuts a longer path off without a word. */
export const MAX_SOCKET_PATH_BYTES = 107

/** The path of a unix socket; unless its `mode` says so, for this user alone. */
interface SocketTarget {
  readonly socketPath: string
  readonly mode?: number
}

export type ListenTarget = ListenAddress | SocketTarget

export interface HttpServerOptions {
  /** What it serves, as messages name it: `agent API`. */
  readonly name: string
  readonly listener: RequestListener
  readonly target: ListenTarget
  /** Which setting the target comes from. */
  readonly setting?: string
  readonly log: Logger
  readonly timeouts?: Partial<typeof TIMEOUTS>
}

/** An HTTP/1.1 server with a bound on everything that a client can stretch. */
export class HttpServer {
  readonly #name: string
  readonly #target: ListenTarget
  readonly #setting: string | undefined
  readonly #log: Logger
  readonly #server: Server
  readonly #active = new DueResponses()
  readonly #connections = new WeakMap<Socket, HttpConnection>()
  readonly #shares = new ConnectionShares<HttpConnection>({ capacity: MAX_CONNECTIONS })
  /** The file of the socket that this server has made. */
  #inode: number | undefined
  /** Resolves when the last connection has ended. */
  #left: Promise<unknown> | undefined
  #stopped: Promise<void> | undefined

  constructor({ name, listener, target, setting, log, timeouts }: HttpServerOptions) {
    const within = { ...TIMEOUTS, ...timeouts }
    this.#name = name
    this.#target = target
    this.#setting = setting
    this.#log = log
    this.#server = createServer(
      {
        headersTimeout: within.headersMs,
        requestTimeout: within.requestMs,
        keepAliveTimeout: within.keepAliveMs,
        connectionsCheckingInterval: within.checkMs,
      },
      (request, response) => {
        this.#track(response)
        listener(request, response)
      },
    )
    const { silenceMs, workMs } = within
    this.#server.setTimeout(silenceMs, (socket) => {
      const connection = this.#connections.get(socket)
      // The silence is ours; it is counted anew.
      if (connection?.isPatient(workMs)) socket.setTimeout(silenceMs)
      else socket.destroy()
    })
    this.#server.maxHeadersCount = MAX_HEADERS
    this.#server.on('connection', (socket) => this.#admit(socket))
    this.#server.on('clientError', (error, socket) => this.#refuse(error, socket))
  }

  /** Where it listens; undefined while it does not, and on a unix socket. */
  get address(): ListenAddress | undefined {
    const address = this.#server.address() as AddressInfo | string | null
    return typeof address === 'object' && address
      ? { host: address.address, port: address.port }
      : undefined
  }

  /** The port that it listens on; 0 on a unix socket. */
  get port(): number {
    return this.address?.port ?? 0
  }

  /** Throws a StartError that says why nobody can listen there. */
  async start(): Promise<void> {
    const target = this.#target
    if ('socketPath' in target) await this.#listenAtPath(target)
    else await this.#listen(target, formatListenAddress(target))
  }

  /**
   * Another process listens there now: takes no more connections, and ends those that there are with
   * their next answer. A client may be about to use one that is idle, which `stop()` closes at once.
   */
  leave(): void {
    if (this.#left || this.#stopped || !this.#server.listening) return
    this.#left = once(this.#server, 'close')
    // That of the HTTP server closes idle connections.
    NetServer.prototype.close.call(this.#server)
    for (const response of this.#active) closeAfter(response)
  }

  /** Takes no more connections, lets requests finish for `drainMs`, then cuts the rest off. */
  stop(drainMs: number = this.#left ? LEFT_MS : DRAIN_MS): Promise<void> {
    this.#stopped ??= this.#stop(drainMs)
    return this.#stopped
  }

  /** In the place of what lies there: the socket of a process that was killed. */
  async #listenAtPath({ socketPath, mode = 0o600 }: SocketTarget): Promise<void> {
    refuseLongPath(socketPath)
    // Node removes the name that it was given when it closes, and that may be another's by then.
    const path = join(dirname(socketPath), ownName(socketPath))
    rmSync(path, { force: true })
    await this.#listen({ path }, socketPath)
    chmodSync(path, mode)
    this.#inode = statSync(path).ino
    renameSync(path, socketPath)
  }

  #hasPath(socketPath: string): boolean {
    return statSync(socketPath, { throwIfNoEntry: false })?.ino === this.#inode
  }

  async #listen(where: { path: string } | ListenAddress, shown: string): Promise<void> {
    try {
      await listenOn(this.#server, where)
    } catch (error) {
      const reason = listenProblem(error, this.#setting)
      throw new StartError(`The ${this.#name} cannot listen on ${shown}: ${reason}.`, {
        cause: error,
      })
    }
  }

  async #stop(drainMs: number): Promise<void> {
    if (!this.#server.listening && !this.#left) return
    const closed = this.#left ?? once(this.#server, 'close')
    const target = this.#target
    if ('socketPath' in target && this.#hasPath(target.socketPath)) {
      rmSync(target.socketPath, { force: true })
    }
    if (!this.#left) this.#server.close()
    for (const response of this.#active) closeAfter(response)
    try {
      await withDeadline(closed, drainMs, `draining the ${this.#name}`)
    } catch (error) {
      if (!(error instanceof DeadlineError)) throw error
      this.#log.warn({ requests: this.#active.size }, 'requests cut off')
      this.#server.closeAllConnections()
      await closed
    }
  }

  #admit(socket: Socket): void {
    const connection = new HttpConnection(socket)
    if (!this.#shares.admit(connection, socket.remoteAddress)) {
      this.#log.debug({ limit: MAX_CONNECTIONS }, 'connection dropped')
      socket.destroy()
      return
    }
    this.#connections.set(socket, connection)
    socket.once('close', () => this.#shares.release(connection))
  }

  /** An answer that has begun cannot be followed by another one for the same connection. */
  #refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
    const hasBegun = [...this.#active].some((it) => it.socket === socket && it.headersSent)
    if (hasBegun) socket.destroy()
    else answerMalformedRequest(error, socket)
  }

  #track(response: ServerResponse): void {
    this.#active.add(response)
    this.#connections.get(response.req.socket)?.track(response)
    if (this.#stopped || this.#left) closeAfter(response)
  }
}

/** Makes this the last answer on its connection: a kept-alive one would hold the stop up. */
function closeAfter(response: ServerResponse): void {
  if (response.headersSent) response.once('finish', () => response.req.socket.destroySoon())
  else response.setHeader('connection', 'close')
}

/** Of this process and this socket alone, and no longer than the names of our sockets. */
function ownName(socketPath: string): string {
  return `.${basename(socketPath).charAt(0)}${process.pid.toString(36)}`
}

function refuseLongPath(path: string): void {
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return
  throw new StartError(
    `The socket path ${path} exceeds ${MAX_SOCKET_PATH_BYTES} bytes. Use a data directory with a shorter path.`,
  )
}
