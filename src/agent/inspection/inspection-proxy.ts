import { once } from 'node:events'
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Clock } from '../../base/clock.ts'
import { createServer, request as send } from '../../base/net/node-http.ts'
import type { ExchangeLog } from './recorded-exchange.ts'

const LOOPBACK = '127.0.0.1'
/** More than the streams of a session. */
const MAX_CONNECTIONS = 512
const MAX_HEAD_BYTES = 64 * 1024
/** Bytes to search for the response headers of an upgrade. */
const MAX_SEEN_BYTES = 16 * 1024

export interface InspectionProxyOptions {
  /** Target that the SDK dials without the proxy: `http://host:port`. */
  readonly upstream: URL
  /** Undefined while the proxy is not recording. */
  readonly exchanges: () => ExchangeLog | undefined
  readonly clock: Clock
}

/**
 * Proxy between the SDK and a tunnel's service during an inspection. Bodies pass through unchanged in both
 * directions. Only a copy of their beginning is kept.
 */
export class InspectionProxy {
  readonly #options: InspectionProxyOptions
  readonly #server = createServer({
    // Passes on everything the service accepts. It must not reject unusual requests.
    insecureHTTPParser: true,
    maxHeaderSize: MAX_HEAD_BYTES,
    // The gateway enforces time limits.
    requestTimeout: 0,
    headersTimeout: 0,
    keepAliveTimeout: 0,
  })

  constructor(options: InspectionProxyOptions) {
    this.#options = options
    this.#server.maxConnections = MAX_CONNECTIONS
    this.#server.on('request', (request, response) => this.#forward(request, response))
    this.#server.on('checkContinue', (request, response) => this.#forward(request, response))
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head))
    this.#server.on('clientError', (_error, socket) => socket.destroy())
    // Open connections do not keep the process running.
    this.#server.on('connection', (socket) => socket.unref())
    this.#server.unref()
  }

  /** Starts the proxy and returns the URL for the SDK to dial. */
  async start(): Promise<string> {
    this.#server.listen(0, LOOPBACK)
    await once(this.#server, 'listening')
    return `http://${LOOPBACK}:${(this.#server.address() as AddressInfo).port}`
  }

  /** Stops accepting connections. Existing connections continue. */
  close(): void {
    this.#server.close()
  }

  #forward(request: IncomingMessage, response: ServerResponse): void {
    const recording = this.#record(request)
    response.sendDate = false
    const outgoing = this.#ask(request)
    let isConnected = false
    const fail = (error: Error) => {
      recording?.fail(error.message)
      if (response.headersSent || isConnected) response.socket?.resetAndDestroy()
      else refuse(response, this.#options.upstream)
      request.resume()
    }
    outgoing.on('socket', (socket) => {
      socket.unref()
      socket.once('connect', () => {
        isConnected = true
      })
    })
    outgoing.on('error', fail)
    outgoing.on('continue', () => response.writeContinue())
    outgoing.on('information', ({ statusCode, headers }) => {
      if (statusCode === 103 && headers.link) response.writeEarlyHints({ link: headers.link })
    })
    outgoing.on('response', (answer) => {
      recording?.answer(answer)
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage, rawOf(answer))
      answer.on('data', (chunk: Buffer) => recording?.answerBody(chunk))
      answer.on('error', fail)
      answer.on('end', () => {
        if (Object.keys(answer.trailers).length > 0)
          response.addTrailers(pairsOf(answer.rawTrailers))
        recording?.end()
      })
      answer.pipe(response)
    })
    request.on('data', (chunk: Buffer) => recording?.requestBody(chunk))
    request.on('end', () => {
      if (Object.keys(request.trailers).length > 0)
        outgoing.addTrailers(pairsOf(request.rawTrailers))
    })
    request.pipe(outgoing)
    response.on('close', () => {
      if (!response.writableFinished) outgoing.destroy()
    })
  }

  #ask(request: IncomingMessage) {
    const { hostname, port } = this.#options.upstream
    return send({
      host: hostname.replace(/^\[|\]$/g, ''),
      port,
      method: request.method ?? 'GET',
      path: request.url ?? '/',
      // Unchanged: order, upper and lower case, repetitions.
      headers: rawOf(request) as unknown as OutgoingHttpHeaders,
      setHost: false,
      agent: false,
      insecureHTTPParser: true,
      maxHeaderSize: MAX_HEAD_BYTES,
    })
  }

  /** Passes bytes through unchanged in both directions. Only reads the response headers. */
  #upgrade(request: IncomingMessage, client: Duplex, head: Buffer): void {
    const recording = this.#record(request)
    const { hostname, port } = this.#options.upstream
    const host = hostname.replace(/^\[|\]$/g, '')
    const upstream = connect({ host, port: Number(port), allowHalfOpen: true, noDelay: true })
    upstream.unref()
    upstream.once('connect', () => {
      upstream.write(headText(request))
      upstream.write(head)
      client.pipe(upstream).pipe(client)
    })
    let seen = Buffer.alloc(0)
    const look = (chunk: Buffer) => {
      seen = Buffer.concat([seen, chunk]).subarray(0, MAX_SEEN_BYTES)
      const end = seen.indexOf('\r\n\r\n')
      if (end < 0 && seen.length < MAX_SEEN_BYTES) return
      upstream.off('data', look)
      recording?.switched(seen.subarray(0, end < 0 ? seen.length : end).toString('latin1'))
    }
    upstream.on('data', look)
    upstream.on('error', (error) => {
      recording?.fail(error.message)
      if (upstream.connecting || upstream.bytesWritten > 0) client.destroy()
      else client.end(unreachable(this.#options.upstream))
    })
    client.on('error', () => upstream.destroy())
    client.on('close', () => upstream.destroy())
  }

  #record(request: IncomingMessage): Recording | undefined {
    const exchanges = this.#options.exchanges()
    return exchanges && new Recording(exchanges, request, this.#options.clock)
  }
}

/** Records one exchange. */
class Recording {
  readonly #exchanges: ExchangeLog
  readonly #clock: Clock
  /** Only the number, so that a dropped exchange can be freed however long it lasts. */
  readonly #number: number
  readonly #startedAt: number

  constructor(exchanges: ExchangeLog, request: IncomingMessage, clock: Clock) {
    const { method = 'GET', url = '/', httpVersion } = request
    this.#exchanges = exchanges
    this.#clock = clock
    this.#startedAt = clock.monotonic()
    this.#number = exchanges.begin({
      startedAt: clock.now(),
      replayOf: undefined,
      request: { method, target: url, httpVersion, fields: pairsOf(request.rawHeaders) },
    }).number
  }

  requestBody(chunk: Buffer): void {
    this.#exchanges.find(this.#number)?.request.body.add(chunk)
  }

  answer({ statusCode = 0, statusMessage = '', httpVersion, rawHeaders }: IncomingMessage): void {
    const response = {
      status: statusCode,
      reason: statusMessage,
      httpVersion,
      fields: pairsOf(rawHeaders),
      body: this.#exchanges.bodyOf(this.#number),
    }
    this.#exchanges.change(this.#number, { response })
  }

  answerBody(chunk: Buffer): void {
    this.#exchanges.find(this.#number)?.response?.body.add(chunk)
  }

  end(): void {
    this.#change({ state: 'answered' })
  }

  switched(head: string): void {
    const [first = '', ...lines] = head.split('\r\n')
    const [, httpVersion = '', status = '0', reason = ''] =
      /^HTTP\/(\S+) (\d{3}) ?(.*)$/.exec(first) ?? []
    const fields = lines.map((line) => {
      const at = line.indexOf(':')
      return [line.slice(0, at), line.slice(at + 1).trim()] as const
    })
    const body = this.#exchanges.bodyOf(this.#number)
    const response = { status: Number(status), reason, httpVersion, fields, body }
    this.#change({ state: status === '101' ? 'switched' : 'answered', response })
  }

  fail(error: string): void {
    this.#change({ state: 'failed', error })
  }

  #change(change: Parameters<ExchangeLog['change']>[1]): void {
    const durationMs = Math.round(this.#clock.monotonic() - this.#startedAt)
    this.#exchanges.change(this.#number, { ...change, durationMs })
  }
}

/** Answers with the same text as the SDK, so that visitors see no difference. */
function refuse(response: ServerResponse, upstream: URL): void {
  const body = refusalText(upstream)
  response.writeHead(502, { connection: 'close', 'content-length': body.length })
  response.end(body)
}

function unreachable(upstream: URL): string {
  const body = refusalText(upstream)
  return `HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`
}

const refusalText = ({ host }: URL) => `failed to dial backend: ${host} cannot be reached`

function headText({ method, url, httpVersion, rawHeaders }: IncomingMessage): string {
  const fields = pairsOf(rawHeaders).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${url} HTTP/${httpVersion}\r\n${fields.join('')}\r\n`
}

const rawOf = ({ rawHeaders }: IncomingMessage): string[] => rawHeaders

function pairsOf(raw: readonly string[]): [string, string][] {
  return Array.from({ length: raw.length / 2 }, (_, at) => [
    raw[at * 2] ?? '',
    raw[at * 2 + 1] ?? '',
  ])
}
