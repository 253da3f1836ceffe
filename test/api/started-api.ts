import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { join } from 'node:path'
import type { Express } from 'express'
import { onTestFinished } from 'vitest'
import { Agent, type AgentOptions } from '../../src/agent/agent.ts'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { AGENT_MIGRATIONS } from '../../src/api/agent-database.ts'
import { commandLineListener, localListener, tunnelListener } from '../../src/api/api-listener.ts'
import { ApiTokens } from '../../src/api/api-tokens.ts'
import {
  type ApiOptions,
  agentRoutes,
  createApi,
  createPage,
  createPageApp,
} from '../../src/api/app.ts'
import type { FindingView } from '../../src/api/diagnosis/doctor.ts'
import { EventFeed } from '../../src/api/events/event-feed.ts'
import { agentApiDocument } from '../../src/api/openapi-document.ts'
import { openOwnerToken } from '../../src/api/owner-token.ts'
import { OneTimeCodes } from '../../src/api/page/one-time-codes.ts'
import { pageUrls } from '../../src/api/page/page-address.ts'
import type { OwnUpdate } from '../../src/api/update-view.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { FailureLimiter } from '../../src/base/limiter.ts'
import { LogTail } from '../../src/base/logger.ts'
import { Secret } from '../../src/base/secret.ts'
import { parseConfig } from '../../src/config.ts'
import { HttpServer, type ListenTarget } from '../../src/http/http-server.ts'
import type { OpenApiDocument } from '../../src/http/openapi.ts'
import { AuditTrail } from '../../src/store/audit-trail.ts'
import { type Database, type DatabaseOptions, openDatabase } from '../../src/store/database.ts'
import { type CapturedLog, captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { OpenApiCheck } from '../helpers/openapi-check.ts'
import { type Answer, type SentRequest, sendRequest } from '../helpers/serve-http.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { FakeService } from './fake-service.ts'

export const API_TOKEN = 'canary-api-token-of-the-test'
const AUTHTOKEN = 'canary-authtoken-of-the-test'
export const AGENT_DOMAIN = 'agent.site.test'
const DEFAULT_POLICY_PATH = join(import.meta.dirname, '../../default-policy.json')
export const DEFAULT_POLICY = readFileSync(DEFAULT_POLICY_PATH, 'utf8')

/** Made with the first API: all have the same routes. */
let documented: OpenApiCheck | undefined

export interface StartedApi extends CapturedLog {
  readonly document: OpenApiDocument
  /** Of the listener of the device, and of the command line. */
  readonly app: Express
  readonly socketApp: Express
  readonly agent: Agent
  readonly service: FakeService
  readonly database: Database
  readonly tokens: ApiTokens
  readonly trail: AuditTrail
  readonly feed: EventFeed
  readonly folder: string
  readonly codes: OneTimeCodes
  readonly logTail: LogTail
  /** What the doctor finds; how often it looked. */
  readonly doctor: { findings: FindingView[]; looks: number }
  /** Of the listener of the device. */
  readonly port: number
  /** Of the listener that serves the page to others in the network. */
  readonly pagePort: number
  /** A request on the listener of the device, with the token unless the headers say otherwise. */
  call(method: string, path: string, body?: unknown, headers?: Headers): Promise<Answer>
  /** The same as it comes out of the agent's own tunnel. */
  callPublic(method: string, path: string, body?: unknown, headers?: Headers): Promise<Answer>
  /** The same at the socket of the command line, without a token. */
  callLocal(method: string, path: string, body?: unknown): Promise<Answer>
}

const LOCAL = { host: 'localhost', authorization: undefined }

/** Undefined leaves a header out that would be sent otherwise. */
type Headers = Readonly<Record<string, string | undefined>>

export interface StartApiOptions {
  readonly folder?: string
  readonly agent?: Partial<AgentOptions>
  readonly database?: Partial<DatabaseOptions>
  readonly update?: OwnUpdate
  /** Clock of the events, which are written some time after they happen. */
  readonly eventClock?: Clock
}

/** The API, each answer held against its document, over a real agent, a real database and a service that can be made to refuse. */
export async function startApi(options: StartApiOptions = {}): Promise<StartedApi> {
  const folder = options.folder ?? temporaryFolder()
  const logTail = new LogTail()
  const captured = captureLog('debug', logTail)
  const { log } = captured
  const clock = systemClock
  const service = await FakeService.start()
  onTestFinished(() => service.stop())

  const database = openDatabase({
    path: join(folder, 'agent.db'),
    migrations: AGENT_MIGRATIONS,
    applicationId: 1,
    reserveBytes: 4_096,
    log,
    clock,
    ...options.database,
  })
  onTestFinished(() => database.close())
  const agent = new Agent({
    ...parseConfig({}).agent,
    database,
    connector: service.connector,
    dataDir: folder,
    authtoken: { files: [], value: new Secret(AUTHTOKEN) },
    serverAddrs: [service.address],
    caCert: service.caPem,
    own: undefined,
    defaultPolicyPath: DEFAULT_POLICY_PATH,
    forward: { allow: [], ownAddresses: () => [] },
    maxTunnels: 10,
    version: '0.0.0-test',
    log,
    clock,
    onPoisoned: () => {},
    timings: { ...DEFAULT_TIMINGS, settleMs: 1_000 },
    // The services of other tests are not to be asked.
    serviceTables: [],
    ...options.agent,
  })
  await agent.start()
  onTestFinished(() => agent.stop())
  await eventually(() => agent.status().ready || Promise.reject(new Error('not ready')))

  const given = new Secret(API_TOKEN)
  const trail = new AuditTrail({ database, log, clock })
  await trail.start()
  const tokens = new ApiTokens({ database, dataDir: folder, given, log, clock })
  openOwnerToken({ tokens, trail, log })
  const failures = new FailureLimiter(clock)
  const codes = new OneTimeCodes(clock)
  const feed = new EventFeed({
    agent,
    database,
    version: '0.0.0-test',
    log,
    clock: options.eventClock ?? clock,
  })
  feed.start()
  onTestFinished(() => feed.stop())
  const doctor: StartedApi['doctor'] = { findings: [], looks: 0 }
  const parts: ApiOptions = {
    agent,
    database,
    tokens,
    trail,
    feed,
    failures,
    codes,
    pageUrls: () => pageUrls({ host: '127.0.0.1', port: local.port }, undefined),
    examine: async () => {
      doctor.looks += 1
      return doctor.findings
    },
    update: options.update,
    logTail,
    log,
    clock,
  }
  const serve = async (listener: RequestListener, target: ListenTarget) => {
    const server = new HttpServer({ name: 'agent API', listener, target, log })
    await server.start()
    onTestFinished(() => server.stop(100))
    return server
  }
  const document = agentApiDocument(Object.values(agentRoutes(parts)).flat())
  documented ??= new OpenApiCheck(document)
  const check = documented
  const page = createPage(parts)
  const here = { host: '127.0.0.1', port: 0 }
  const ofDevice = localListener('127.0.0.1')
  const app = createApi(parts, ofDevice, page)
  const local = await serve(app, here)
  const network = await serve(createPageApp(parts, ofDevice, page), here)
  const socketPath = join(temporaryFolder(), 'api.sock')
  await serve(createApi(parts, tunnelListener(AGENT_DOMAIN)), { socketPath })
  const localSocketPath = join(temporaryFolder(), 'local.sock')
  const socketApp = createApi(parts, commandLineListener())
  await serve(socketApp, { socketPath: localSocketPath })

  const caller =
    (at: { port: number } | { socketPath: string }, host: string) =>
    async (method: string, path: string, body?: unknown, headers: Headers = {}) => {
      const answer = await sendRequest(at, toSent(method, path, body, { host, ...headers }))
      const contentType = answer.headers['content-type']
      check.check({ ...answer, method, path, contentType: String(contentType) })
      return answer
    }
  return {
    ...captured,
    document,
    app,
    socketApp,
    agent,
    service,
    database,
    tokens,
    trail,
    feed,
    folder,
    codes,
    logTail,
    doctor,
    port: local.port,
    pagePort: network.port,
    call: caller({ port: local.port }, `127.0.0.1:${local.port}`),
    callPublic: caller({ socketPath }, AGENT_DOMAIN),
    callLocal: (method, path, body) =>
      sendRequest({ socketPath: localSocketPath }, toSent(method, path, body, LOCAL)),
  }
}

function toSent(method: string, path: string, body: unknown, headers: Headers): SentRequest {
  const all: Headers = {
    authorization: `Bearer ${API_TOKEN}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...headers,
  }
  const given = Object.entries(all).filter(
    (header): header is [string, string] => header[1] !== undefined,
  )
  const isText = typeof body === 'string' || Buffer.isBuffer(body)
  return {
    method,
    path,
    headers: Object.fromEntries(given),
    ...(body === undefined ? {} : { body: isText ? body : JSON.stringify(body) }),
  }
}
