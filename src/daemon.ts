import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Agent } from './agent/agent.ts'
import { KeptValues } from './agent/kept-values.ts'
import { NgrokConnector } from './agent/ngrok-connector.ts'
import { heartbeatOf } from './agent/timings.ts'
import { openAgentDatabase } from './api/agent-database.ts'
import { commandLineListener, localListener, tunnelListener } from './api/api-listener.ts'
import { ApiTokens } from './api/api-tokens.ts'
import { type ApiOptions, createApi, createPage, createPageApp } from './api/app.ts'
import type { Examine } from './api/diagnosis/doctor.ts'
import { EventFeed } from './api/events/event-feed.ts'
import { localSocket } from './api/local-socket.ts'
import { adoptProvisionedToken, openOwnerToken } from './api/owner-token.ts'
import { OneTimeCodes } from './api/page/one-time-codes.ts'
import { pageUrls } from './api/page/page-address.ts'
import { PageServer } from './api/page/page-server.ts'
import type { OwnUpdate } from './api/update-view.ts'
import { StartError } from './base/app-error.ts'
import type { Clock } from './base/clock.ts'
import type { Closer } from './base/closer.ts'
import { createDeferred } from './base/deferred.ts'
import { fileFlaw, isCertificate } from './base/file.ts'
import { FailureLimiter } from './base/limiter.ts'
import type { ListenAddress } from './base/listen-address.ts'
import type { Logger, LogTail } from './base/logger.ts'
import { missingBuild, thisMachine } from './base/machine.ts'
import type { Secret } from './base/secret.ts'
import type { Config } from './config.ts'
import { HttpServer, MAX_SOCKET_PATH_BYTES } from './http/http-server.ts'
import { AuditTrail } from './store/audit-trail.ts'
import { type FolderLock, isWritable, lockFolder } from './store/data-folder.ts'
import type { Database } from './store/database.ts'

/** Time in addition to the drain. */
const STOP_WITHIN_MS = 5_000
/** Interval of checks whether the folder of the local socket is writable. */
const SOCKET_RETRY_MS = 5_000

export interface DaemonOptions {
  readonly config: Config['agent']
  readonly version: string
  /** Other listeners of this process. Tunnels must not lead there, because requests would loop. */
  readonly neighbours?: readonly ListenAddress[]
  /** Returns the answer of `GET /doctor`. */
  readonly examine: (agent: Agent, database: Database) => ReturnType<Examine>
  /** Update of an installed program, which may be on trial. */
  readonly update?: OwnUpdate | undefined
  readonly log: Logger
  /** The newest lines of `log`. */
  readonly logTail: LogTail
  readonly clock: Clock
}

/** The running agent with its API. */
export interface Daemon {
  readonly agent: Agent
  readonly database: Database
  /** Address of the API on the device. */
  readonly address: ListenAddress
  /** Plain text of the API token, while it is known. */
  readonly apiToken: Secret | undefined
  /** Resolves with a reason if only a new process can continue. */
  readonly broken: Promise<string>
}

/**
 * Builds the agent and starts it. Opened resources are added to the closer. When this resolves, the API
 * listens and the restore is running. It never waits for the service.
 */
export async function startDaemon(options: DaemonOptions, closer: Closer): Promise<Daemon> {
  const { config, clock, log } = options
  const missing = missingBuild('the SDK', thisMachine())
  if (missing !== undefined) throw new StartError(missing)
  const broken = createDeferred<string>()
  const onBroken = broken.resolve
  const records = await openRecords(options, onBroken, closer)
  const { database, tokens } = records
  const own = new OwnAddresses(config)
  const socketPath = openSocketFolder(config.dataDir, closer)
  const agent = createAgent({ options, database, own, socketPath, onBroken })
  const feed = new EventFeed({ agent, database, version: options.version, clock, log })
  const api = apiOptions(options, records, { agent, feed, own })
  await openListeners(options, { api, own, socketPath }, closer)
  await openDesk(options, { api, lock: records.lock }, closer)
  const withinMs = config.drainMs + STOP_WITHIN_MS
  await closer.own('agent', agent, (it) => it.stop(), withinMs).start()
  closer.own('events', feed, (it) => it.stop())
  // Restored tunnels are not events.
  feed.start()
  return { agent, database, address: own.api, apiToken: tokens.ownerPlain, broken: broken.promise }
}

/** Addresses of the listeners. A port is known after its listener has started. */
class OwnAddresses {
  readonly #listen: ListenAddress
  readonly #pageListen: ListenAddress | undefined
  /** Set when they are created. */
  server: HttpServer | undefined
  page: PageServer | undefined

  constructor({ listen, pageListen }: Config['agent']) {
    this.#listen = listen
    this.#pageListen = pageListen
  }

  get api(): ListenAddress {
    return { ...this.#listen, port: this.server?.port ?? this.#listen.port }
  }

  /** The API, and the page in the local network. */
  get all(): ListenAddress[] {
    return this.#pageListen ? [this.api, this.page?.address ?? this.#pageListen] : [this.api]
  }
}

interface Records {
  readonly lock: FolderLock
  readonly database: Database
  readonly trail: AuditTrail
  readonly tokens: ApiTokens
}

/** Locks the data directory, opens its database, and ensures that the owner has a token. */
async function openRecords(
  { config, log, clock }: DaemonOptions,
  onRestartNeeded: (reason: string) => void,
  closer: Closer,
): Promise<Records> {
  const { dataDir, apiToken: given, apiTokenHash: hash } = config
  const lock = closer.own('lock', lockFolder({ folder: dataDir, owner: 'agent', log }), (it) =>
    it.release(),
  )
  const database = closer.own(
    'database',
    openAgentDatabase(dataDir, { onRestartNeeded, log, clock }),
    (it) => it.close(),
  )
  const trail = new AuditTrail({ database, log, clock })
  const tokens = new ApiTokens({ database, dataDir, given, log, clock })
  await trail.start()
  openOwnerToken({ tokens, trail, log })
  if (hash !== undefined) {
    adoptProvisionedToken({ hash, tokens, kept: new KeptValues(database), trail, log })
  }
  return { lock, database, trail, tokens }
}

interface AgentNeeds {
  readonly options: DaemonOptions
  readonly database: Database
  readonly own: OwnAddresses
  readonly socketPath: string
  readonly onBroken: (reason: string) => void
}

function createAgent({ options, database, own, socketPath, onBroken }: AgentNeeds): Agent {
  const { config, version, neighbours = [], log, clock } = options
  const { domain, link, authtokenFile } = config
  return new Agent({
    ...config,
    database,
    connector: new NgrokConnector({ version, log, heartbeat: heartbeatOf(link), ...link }),
    authtoken: {
      files: authtokenFile === undefined ? [] : [authtokenFile],
      value: config.authtoken,
    },
    caCert: readCaCert(config.caCertPath),
    caCertPath: config.caCertPath,
    own: domain === undefined ? undefined : { domain, socketPath },
    forward: {
      ...config.forward,
      ownAddresses: () => [...own.all, ...neighbours],
      ownSockets: () => [socketPath, localSocket(config).socketPath],
    },
    version,
    log,
    clock,
    onPoisoned: () => onBroken('the SDK does not respond'),
  })
}

interface ApiNeeds {
  readonly agent: Agent
  readonly feed: EventFeed
  readonly own: OwnAddresses
}

function apiOptions(
  { examine, update, logTail, log, clock }: DaemonOptions,
  { database, trail, tokens }: Records,
  { agent, feed, own }: ApiNeeds,
): ApiOptions {
  return {
    feed,
    agent,
    database,
    tokens,
    trail,
    failures: new FailureLimiter(clock),
    codes: new OneTimeCodes(clock),
    pageUrls: () => pageUrls(own.api, own.page?.address),
    examine: () => examine(agent, database),
    update,
    logTail,
    log,
    clock,
  }
}

interface ListenerNeeds {
  readonly api: ApiOptions
  readonly own: OwnAddresses
  readonly socketPath: string
}

/** Opens the API for the agent's own tunnel, the API at AGENT_LISTEN, and the page in the local network. */
async function openListeners(
  { config, log, clock }: DaemonOptions,
  { api, own, socketPath }: ListenerNeeds,
  closer: Closer,
): Promise<void> {
  const { listen, pageListen, domain } = config
  const page = createPage(api)
  own.server = new HttpServer({
    name: 'agent API',
    listener: createApi(api, localListener(listen.host), page),
    target: listen,
    setting: 'AGENT_LISTEN',
    log,
  })
  if (pageListen) {
    const listener = createPageApp(api, localListener(pageListen.host), page)
    own.page = new PageServer({ listener, target: pageListen, log, clock })
  }
  if (domain !== undefined) {
    const listener = createApi(api, tunnelListener(domain))
    const server = new HttpServer({ name: 'agent API', listener, target: { socketPath }, log })
    await closer.own('public API', server, (it) => it.stop()).start()
  }
  await closer.own('agent API', own.server, (it) => it.stop()).start()
  if (own.page) await closer.own('page', own.page, (it) => it.stop()).start()
}

/** Opens the local socket of the command line, at once or when its folder becomes writable. */
async function openDesk(
  { config, log, clock }: DaemonOptions,
  { api, lock }: { readonly api: ApiOptions; readonly lock: FolderLock },
  closer: Closer,
): Promise<void> {
  const desk = localSocket(config)
  const open = async () => {
    const listener = createApi(api, commandLineListener())
    const server = new HttpServer({ name: 'local socket', listener, target: desk, log })
    try {
      await server.start()
    } catch (error) {
      await server.stop()
      throw error
    }
    return server
  }
  if (canListenAt(desk.socketPath)) {
    closer.own('local socket', await open(), (it) => it.stop())
    return
  }
  log.warn(
    { path: desk.socketPath },
    'cannot create the local socket, the command line needs a token',
  )
  const openFirst = () => {
    // A folder that was not writable has no lock. Another agent may have started since then.
    lock.reclaim()
    return open()
  }
  const later = openWhenWritable({ path: desk.socketPath, open: openFirst, log, clock })
  closer.own('local socket', later, (it) => it.stop())
}

/**
 * Returns the path of the public API's socket in the data directory. If that is read-only, or the path is too
 * long for a socket, uses a private temporary folder. That folder is deleted on exit.
 */
function openSocketFolder(dataDir: string, closer: Closer): string {
  const path = join(dataDir, 'api.sock')
  if (canListenAt(path)) return path
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-'))
  closer.own('socket folder', folder, (it) => rmSync(it, { recursive: true, force: true }))
  return join(folder, 'api.sock')
}

const canListenAt = (path: string) =>
  isWritable(dirname(path)) && Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES

interface LaterOptions {
  readonly path: string
  readonly open: () => Promise<HttpServer>
  readonly log: Logger
  readonly clock: Clock
}

/** Opens the socket once its folder is writable, because a disk may be remounted for writing. */
function openWhenWritable({ path, open, log, clock }: LaterOptions): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const opened = (async () => {
    let isTold = false
    while (!signal.aborted) {
      await clock.sleep(SOCKET_RETRY_MS, signal).catch(() => {})
      if (signal.aborted || !canListenAt(path)) continue
      try {
        const server = await open()
        log.info({ path }, 'local socket opened')
        return server
      } catch (error) {
        if (!isTold)
          log.warn({ err: error, path }, 'cannot open the local socket yet, trying again')
        isTold = true
      }
    }
    return undefined
  })()
  return {
    stop: async () => {
      stopping.abort()
      await (await opened)?.stop()
    },
  }
}

/** Returns PEM text. Throws a StartError with the fix. */
export function readCaCert(path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  const refuse = (flaw: string, cause?: unknown) =>
    new StartError(
      `Cannot use SVC_CA_CERT ${path}: ${flaw}. Copy ca.pem of the gateway to this path, readable by the user of the agent. On the gateway, device-agent gateway show ca prints it.`,
      { cause },
    )
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw refuse(fileFlaw(error), error)
  }
  if (!isCertificate(text)) throw refuse('it contains no certificate')
  return text
}
