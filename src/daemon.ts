import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Agent } from './agent/agent.ts'
import type { Connector } from './agent/connector.ts'
import { KeptValues } from './agent/kept-values.ts'
import { NgrokConnector } from './agent/ngrok-connector.ts'
import { DEFAULT_TIMINGS } from './agent/timings.ts'
import { openAgentDatabase } from './api/agent-database.ts'
import { commandLineListener, localListener, tunnelListener } from './api/api-listener.ts'
import { ApiTokens } from './api/api-tokens.ts'
import { type ApiOptions, createApi, createPage, createPageApp } from './api/app.ts'
import type { Examine } from './api/diagnosis/doctor.ts'
import { EventFeed } from './api/events/event-feed.ts'
import { localSocket } from './api/local-socket.ts'
import { openOwnerToken } from './api/owner-token.ts'
import { OneTimeCodes } from './api/page/one-time-codes.ts'
import { pageUrls } from './api/page/page-address.ts'
import { PageServer } from './api/page/page-server.ts'
import { adoptProvisionedToken } from './api/provisioned-token.ts'
import type { OwnUpdate } from './api/update/update-view.ts'
import { StartError } from './base/app-error.ts'
import type { Clock } from './base/clock.ts'
import type { Closer } from './base/closer.ts'
import { createDeferred } from './base/deferred.ts'
import { Handover } from './base/handover.ts'
import { FailureLimiter } from './base/limit/failure-limiter.ts'
import type { ListenAddress } from './base/listen-address.ts'
import type { LogTail } from './base/log/log-tail.ts'
import type { Logger } from './base/logger.ts'
import { listeningDescriptor } from './base/net/inherited-sockets.ts'
import type { Secret } from './base/secret.ts'
import type { Config } from './config.ts'
import { HttpServer, MAX_SOCKET_PATH_BYTES } from './http/http-server.ts'
import { RequestGate } from './http/request-gate.ts'
import { AuditTrail } from './store/audit-trail.ts'
import { isWritable } from './store/data-folder.ts'
import type { Database } from './store/database.ts'
import { lockFolder } from './store/folder-lock.ts'

/** Beside the drain. */
const STOP_WITHIN_MS = 5_000
/** Of a name that the process has whose place this one takes, where nobody may take over. */
const SUCCESSOR_GHOST_RETRY_MS = 1_000

export interface DaemonOptions {
  readonly config: Config['agent']
  readonly version: string
  /** Listeners of the same process, where no tunnel may lead: a request would go in circles. */
  readonly neighbours?: readonly ListenAddress[]
  /** What `GET /doctor` answers. */
  readonly examine: (agent: Agent, database: Database) => ReturnType<Examine>
  /** For a process that takes another one's place. */
  readonly successor?: SuccessorOptions | undefined
  /** Of an installed program, which may be on trial. */
  readonly update?: OwnUpdate | undefined
  readonly log: Logger
  /** The end of what goes to `log`. */
  readonly logTail: LogTail
  readonly clock: Clock
}

/** What a process that takes another one's place has of it. */
export interface SuccessorOptions {
  readonly instance: string
  /** Already connected, where there is something to connect to. */
  readonly connector: Connector
  /** Those of the settings, beginning with the one that it is connected to. */
  readonly serverAddrs: readonly string[]
}

/** The started agent with its API. */
export interface Daemon {
  readonly agent: Agent
  readonly database: Database
  /** Where the API listens on the device. */
  readonly address: ListenAddress
  /** Plain text of the API's token while somebody still has it. */
  readonly apiToken: Secret | undefined
  /** Resolves with a reason when only a new process can go on. */
  readonly broken: Promise<string>
  /** Takes changes from now on, where this process is a successor; another one does from its start. */
  begin(): Promise<void>
  /** For a process that takes this one's place; see `ReloadableService`. */
  release(): Promise<void>
  reclaim(): Promise<void>
  leave(): void
  sockets(): number[]
}

/**
 * Puts the agent together and starts it: what is opened goes on the closer. When this resolves,
 * the API listens and the restore is under way; it never waits for the service.
 */
export async function startDaemon(options: DaemonOptions, closer: Closer): Promise<Daemon> {
  const { config, version, neighbours = [], successor, log, clock } = options
  const { dataDir, listen, pageListen, domain, drainMs, link } = config
  const broken = createDeferred<string>()

  const lock = closer.own('lock', lockFolder({ folder: dataDir, owner: 'agent', log }), (it) =>
    it.release(),
  )
  const database = closer.own(
    'database',
    openAgentDatabase(dataDir, { onRestartNeeded: broken.resolve, log, clock }),
    (it) => it.close(),
  )
  const trail = new AuditTrail({ database, log, clock })
  // Until the other process knows that this one serves, it may still take everything back.
  const isProvisional = successor !== undefined
  const given = config.apiToken
  const tokens = new ApiTokens({ database, dataDir, given, isProvisional, log, clock })
  const settleBooks = async () => {
    await trail.start()
    openOwnerToken({ tokens, trail, log })
    if (config.apiTokenHash === undefined) return
    const kept = new KeptValues(database)
    adoptProvisionedToken({ hash: config.apiTokenHash, tokens, kept, trail, log })
  }
  if (!isProvisional) await settleBooks()
  const socketPath = openSocketFolder(dataDir, closer)

  const agent = new Agent({
    database,
    connector:
      successor?.connector ?? new NgrokConnector({ version, log, heartbeat: link.heartbeat }),
    instance: successor?.instance,
    isProvisional,
    dataDir,
    authtoken: {
      files: config.authtokenFile === undefined ? [] : [config.authtokenFile],
      value: config.authtoken,
    },
    serverAddrs: successor?.serverAddrs ?? config.serverAddrs,
    ingress: config.ingressAddr,
    caCert: readCaCert(config.caCertPath),
    own: domain === undefined ? undefined : { domain, socketPath },
    defaultPolicyPath: config.defaultPolicyPath,
    forward: {
      allow: config.forwardAllow,
      ownAddresses: () => [here(), ...inNetwork(), ...neighbours],
      ownSockets: () => [socketPath, localSocket(config).socketPath],
    },
    maxTunnels: config.maxTunnels,
    upstream: config.upstream,
    unknownActions: config.unknownActions,
    heartbeat: link.isHeartbeatOurs ? link.heartbeat : undefined,
    // A second session would cost as much as the first.
    hasStandby: !link.isMetered,
    timings: {
      ...DEFAULT_TIMINGS,
      ...(successor &&
        config.serverAddrs.length === 0 && {
          tunnel: { ...DEFAULT_TIMINGS.tunnel, ghostRetryMs: SUCCESSOR_GHOST_RETRY_MS },
        }),
      drainMs,
      probe: { ...DEFAULT_TIMINGS.probe, ...link.probe },
    },
    version,
    log,
    clock,
    onPoisoned: () => broken.resolve('the SDK does not respond'),
  })

  const feed = new EventFeed({ agent, database, version, clock, log })
  const gate = new RequestGate({ isOpenForReads: true })
  if (isProvisional) await gate.close()
  const common: ApiOptions = {
    gate,
    feed,
    agent,
    database,
    tokens,
    trail,
    failures: new FailureLimiter(clock),
    codes: new OneTimeCodes(clock),
    pageUrls: () => pageUrls(here(), pageServer?.address),
    examine: () => options.examine(agent, database),
    update: options.update,
    logTail: options.logTail,
    log,
    clock,
  }
  const page = createPage(common)
  const local = new HttpServer({
    name: 'agent API',
    listener: createApi(common, localListener(listen.host), page),
    target: listen,
    setting: 'AGENT_LISTEN',
    log,
  })
  const pageServer =
    pageListen &&
    new PageServer({
      listener: createPageApp(common, localListener(pageListen.host), page),
      target: pageListen,
      log,
      clock,
    })
  // What a port is, is known once something listens there.
  const here = () => ({ ...listen, port: local.port })
  const inNetwork = () => (pageListen ? [pageServer?.address ?? pageListen] : [])
  const atPaths: HttpServer[] = []
  if (domain !== undefined) {
    const listener = createApi(common, tunnelListener(domain))
    const server = new HttpServer({ name: 'agent API', listener, target: { socketPath }, log })
    atPaths.push(server)
    await closer.own('public API', server, (it) => it.stop()).start()
  }
  await closer.own('agent API', local, (it) => it.stop()).start()
  if (pageServer) await closer.own('page', pageServer, (it) => it.stop()).start()
  const desk = localSocket(config)
  if (canListenAt(desk.socketPath)) {
    const listener = createApi(common, commandLineListener())
    const server = new HttpServer({ name: 'local socket', listener, target: desk, log })
    atPaths.push(server)
    await closer.own('local socket', server, (it) => it.stop()).start()
  } else {
    log.warn({ path: desk.socketPath }, 'no local socket, the command line needs a token')
  }
  const withinMs = drainMs + STOP_WITHIN_MS
  await closer.own('agent', agent, (it) => it.stop(), withinMs).start()
  closer.own('events', feed, (it) => it.stop())
  const begin = async () => {
    if (isProvisional) {
      // Before any change: they conclude what an earlier process began.
      await settleBooks()
      agent.begin()
    }
    tokens.begin()
    gate.open()
    // What was restored was not made now.
    feed.start()
  }
  if (!isProvisional) await begin()
  const { succession } = agent
  const handover = new Handover([
    { release: () => gate.close(), reclaim: () => gate.open() },
    { release: () => feed.hold(), reclaim: () => feed.resume() },
    { release: () => succession.yield(), reclaim: () => succession.resume() },
    {
      release: () => {},
      reclaim: async () => {
        for (const server of atPaths) await server.reclaim()
      },
    },
    // Without the lock another process has the folder.
    new Handover([database, lock], { isChain: true }),
  ])
  return {
    agent,
    database,
    address: { host: listen.host, port: local.port },
    apiToken: tokens.ownerPlain,
    broken: broken.promise,
    begin,
    release: () => handover.release(),
    reclaim: () => handover.reclaim(),
    leave: () => {
      feed.stop()
      for (const server of [local, ...(pageServer ? [pageServer] : []), ...atPaths]) {
        server.leave()
      }
    },
    sockets: () => [required(local.address), ...optional(pageServer?.address)],
  }
}

/** Where the API listens. Throws a StartError where the system does not tell by which descriptor. */
function required(address: ListenAddress | undefined): number {
  const fd = address && listeningDescriptor(address)
  if (fd !== undefined) return fd
  throw new StartError(
    'the listening socket of the API cannot be passed to a new process. Restart the agent instead',
  )
}

/** A page that is not passed on is served as soon as its address is free. */
function optional(address: ListenAddress | undefined): number[] {
  const fd = address && listeningDescriptor(address)
  return fd === undefined ? [] : [fd]
}

/**
 * The socket of the public API lies in the data folder; where that is read-only or its path too
 * long for a socket, in a private folder that goes away with the process.
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

/** PEM text. Throws a StartError that says what to do. */
export function readCaCert(path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const flaw = `Cannot read SVC_CA_CERT ${path} (${code})`
    const remedy = 'Copy ca.pem of the gateway to a path that the user of the agent can read'
    throw new StartError(`${flaw}. ${remedy}.`, { cause: error })
  }
}
