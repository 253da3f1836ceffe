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
import { answerMalformedRequest, type ErrorFormat } from './error-response.ts'
import { DueResponses } from './request-gate.ts'

/** A client's connection to an API, as counted by its listener. */
export class HttpConnection implements SharedConnection {
  readonly #socket: Socket
  /** Pending responses, with the time at which each became pending. */
  readonly #due = new Map<ServerResponse, number>()
  #idleSince = performance.now()

  constructor(socket: Socket) {
    this.#socket = socket
  }

  /** `busy` from the end of a complete request until its whole answer is written. */
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

  /** Counts a request as pending until its response is closed. */
  track(response: ServerResponse): void {
    this.#due.set(response, performance.now())
    response.once('close', () => {
      this.#due.delete(response)
      this.#idleSince = performance.now()
    })
  }

  /** Whether it has waited at most `ms` for an answer that has not begun. */
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

/** Time limits for clients, in milliseconds. */
const TIMEOUTS = {
  headersMs: 10_000,
  requestMs: 30_000,
  keepAliveMs: 5_000,
  /** Time without a byte in either direction, for clients that stop reading the answer. */
  silenceMs: 60_000,
  /** The same while the client waits for an answer in progress. No request takes longer. */
  workMs: 15 * 60_000,
  /** Interval of the checks of `headersMs` and `requestMs`. Node's default of 30 s would be too late. */
  checkMs: 2_000,
}
const MAX_CONNECTIONS = 256
const MAX_HEADERS = 100
/** Default time for requests in progress to end when the server stops. */
const DRAIN_MS = 5_000
/** Clients stop using an idle connection one second before `keepAliveMs`. */
const LEFT_MS = 4_500
/** Size of `sun_path` in unix(7) without its terminating zero. Node truncates a longer path silently. */
export const MAX_SOCKET_PATH_BYTES = 107

/** Path of a unix socket. It is accessible only to this user unless `mode` says otherwise. */
interface SocketTarget {
  readonly socketPath: string
  readonly mode?: number
}

export type ListenTarget = ListenAddress | SocketTarget

export interface HttpServerOptions {
  /** Name of the server in messages, for example `agent API`. */
  readonly name: string
  readonly listener: RequestListener
  readonly target: ListenTarget
  /** Setting that contains the target, for messages. */
  readonly setting?: string
  /** Format of answers to requests that are not valid HTTP. Default: problem details. */
  readonly errors?: ErrorFormat | undefined
  readonly log: Logger
  readonly timeouts?: Partial<typeof TIMEOUTS>
}

/** An HTTP/1.1 server that limits all resources a client can use. */
export class HttpServer {
  readonly #name: string
  readonly #target: ListenTarget
  readonly #setting: string | undefined
  readonly #log: Logger
  readonly #errors: ErrorFormat | undefined
  readonly #server: Server
  readonly #active = new DueResponses()
  readonly #connections = new WeakMap<Socket, HttpConnection>()
  readonly #shares = new ConnectionShares<HttpConnection>({ capacity: MAX_CONNECTIONS })
  /** Inode of the socket file that this server created. */
  #inode: number | undefined
  /** Resolves when the last connection has ended. */
  #left: Promise<unknown> | undefined
  #stopped: Promise<void> | undefined

  constructor({ name, listener, target, setting, errors, log, timeouts }: HttpServerOptions) {
    const within = { ...TIMEOUTS, ...timeouts }
    this.#name = name
    this.#target = target
    this.#setting = setting
    this.#errors = errors
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
      // The server causes this silence, so the time starts again.
      if (connection?.isPatient(workMs)) socket.setTimeout(silenceMs)
      else socket.destroy()
    })
    this.#server.maxHeadersCount = MAX_HEADERS
    this.#server.on('connection', (socket) => this.#admit(socket))
    this.#server.on('clientError', (error, socket) => this.#refuse(error, socket))
  }

  /** Listen address. Undefined before the start, after the stop and on a unix socket. */
  get address(): ListenAddress | undefined {
    const address = this.#server.address() as AddressInfo | string | null
    return typeof address === 'object' && address
      ? { host: address.address, port: address.port }
      : undefined
  }

  /** Listen port. 0 on a unix socket. */
  get port(): number {
    return this.address?.port ?? 0
  }

  /** Throws a StartError that explains why it cannot listen. */
  async start(): Promise<void> {
    const target = this.#target
    if ('socketPath' in target) await this.#listenAtPath(target)
    else await this.#listen(target, formatListenAddress(target))
  }

  /**
   * Stops accepting, because another process listens now. Open connections end with their next answer. Idle
   * connections stay open, because a client may be about to use them. `stop()` would close them at once.
   */
  stopAccepting(): void {
    if (this.#left || this.#stopped || !this.#server.listening) return
    this.#left = once(this.#server, 'close')
    // `close` of the HTTP server would also close idle connections.
    NetServer.prototype.close.call(this.#server)
    for (const response of this.#active) closeAfter(response)
  }

  /** Stops accepting, lets requests finish for `drainMs`, then closes the remaining connections. */
  stop(drainMs: number = this.#left ? LEFT_MS : DRAIN_MS): Promise<void> {
    this.#stopped ??= this.#stop(drainMs)
    return this.#stopped
  }

  /** Replaces an existing socket file, for example of a killed process. */
  async #listenAtPath({ socketPath, mode = 0o600 }: SocketTarget): Promise<void> {
    refuseLongPath(socketPath)
    // When it closes, Node removes the path it was given, which may belong to another process by then. So it
    // gets a temporary path.
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
      this.#log.warn(
        { requests: this.#active.size },
        'open requests took too long to finish and were cut off',
      )
      this.#server.closeAllConnections()
      await closed
    }
  }

  #admit(socket: Socket): void {
    const connection = new HttpConnection(socket)
    if (!this.#shares.admit(connection, socket.remoteAddress)) {
      this.#log.debug({ limit: MAX_CONNECTIONS }, 'connection refused, the limit is reached')
      socket.destroy()
      return
    }
    this.#connections.set(socket, connection)
    socket.once('close', () => this.#shares.release(connection))
  }

  /** Answers an invalid request. After an answer has begun on a connection, an error answer cannot follow. */
  #refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
    const hasBegun = [...this.#active].some((it) => it.socket === socket && it.headersSent)
    if (hasBegun) socket.destroy()
    else answerMalformedRequest(error, socket, this.#errors)
  }

  #track(response: ServerResponse): void {
    this.#active.add(response)
    this.#connections.get(response.req.socket)?.track(response)
    if (this.#stopped || this.#left) closeAfter(response)
  }
}

/** Closes the connection after this answer. A keep-alive connection would delay the stop. */
function closeAfter(response: ServerResponse): void {
  if (response.headersSent) response.once('finish', () => response.req.socket.destroySoon())
  else response.setHeader('connection', 'close')
}

/** Returns a name that is unique to this process and socket, and not longer than the names of our sockets. */
function ownName(socketPath: string): string {
  return `.${basename(socketPath).charAt(0)}${process.pid.toString(36)}`
}

function refuseLongPath(path: string): void {
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return
  throw new StartError(
    `The socket path ${path} exceeds ${MAX_SOCKET_PATH_BYTES} bytes. Use a data directory with a shorter path.`,
  )
}
