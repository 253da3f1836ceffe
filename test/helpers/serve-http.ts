import { type RequestListener, request as send } from 'node:http'
import { connect, type Socket } from 'node:net'
import express, { type Express } from 'express'
import { onTestFinished } from 'vitest'
import { requestId } from '../../src/http/access-log.ts'
import { errorResponse, noRoute } from '../../src/http/error-response.ts'
import {
  HttpServer,
  type HttpServerOptions,
  type ListenTarget,
} from '../../src/http/http-server.ts'
import { type CapturedLog, captureLog } from './captured-log.ts'

export interface ServedHttp extends CapturedLog {
  readonly server: HttpServer
  /** Where a client connects to. */
  readonly at: { readonly port: number } | { readonly socketPath: string }
}

/** Serves `listener` on a free loopback port or on a unix socket, until the test is over. */
export async function serveHttp(
  listener: RequestListener,
  target: ListenTarget = { host: '127.0.0.1', port: 0 },
  options: Partial<HttpServerOptions> = {},
): Promise<ServedHttp> {
  const captured = captureLog()
  const { log } = captured
  const server = new HttpServer({ name: 'test server', listener, target, log, ...options })
  await server.start()
  onTestFinished(() => server.stop(100))
  const at = 'socketPath' in target ? target : { port: server.port }
  return { ...captured, server, at }
}

/** An app that `build` gives its routes, between a request id and the error answer. */
export function appWith(build: (app: Express) => void, { log } = captureLog()): Express {
  const app = express()
  app.use(requestId)
  build(app)
  app.use(noRoute, errorResponse(log))
  return app
}

export interface SentRequest {
  readonly method?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Buffer
  /** The body goes when this is done, which begins when the server has the head. */
  readonly beforeBody?: () => Promise<unknown>
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly text: string
  /** The body as JSON; undefined when it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every form.
  readonly json: any
}

/** One request on a connection of its own; every header is as the test says. */
export function sendRequest(at: ServedHttp['at'], sent: SentRequest = {}): Promise<Answer> {
  const { method = 'GET', path = '/', body, beforeBody } = sent
  const headers = { ...sent.headers, ...(beforeBody && { expect: '100-continue' }) }
  return new Promise((resolve, reject) => {
    const request = send({ ...at, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        const isJson = /json/.test(response.headers['content-type'] ?? '') && text !== ''
        const json = isJson ? JSON.parse(text) : undefined
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json })
      })
    })
    request.on('error', reject)
    if (!beforeBody) return void request.end(body)
    request.on('continue', () => beforeBody().then(() => request.end(body), reject))
    request.flushHeaders()
  })
}

/** Writes bytes that no client library would and returns all that comes back. */
export function sendBytes(at: ServedHttp['at'], bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = 'port' in at ? connect(at.port, '127.0.0.1') : connect(at.socketPath)
    let text = ''
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk
    })
    socket.on('close', () => resolve(text))
    socket.on('error', reject)
    socket.write(bytes)
  })
}

/** Writes as many POSTs in one piece, as no client library would, on a connection that stays. */
export function sendPipelined(at: ServedHttp['at'], count: number): Socket {
  const socket = 'port' in at ? connect(at.port, '127.0.0.1') : connect(at.socketPath)
  onTestFinished(() => void socket.destroy())
  socket.on('error', () => {})
  socket.write('POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n'.repeat(count))
  return socket
}
