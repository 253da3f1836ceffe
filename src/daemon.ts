import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Agent } from './agent/agent.ts'
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
import { adoptProvisionedToken, openOwnerToken } from './api/owner-token.ts'
import { OneTimeCodes } from './api/page/one-time-codes.ts'
import { pageUrls } from './api/page/page-address.ts'
import { PageServer } from './api/page/page-server.ts'

import type { OwnUpdate } from './api/update/update-view.ts'
import { StartError } from './base/app-error.ts'
import type { Clock } from './base/clock.ts'
import type { Closer } from './base/closer.ts'
import { createDeferred } from './base/deferred.ts'
import { FailureLimiter } from './base/limiter.ts'
import type { ListenAddress } from './base/listen-address.ts'
import type { Logger, LogTail } from './base/logger.ts'

import type { Secret } from './base/secret.ts'
import type { Config } from './config.ts'
import { HttpServer, MAX_SOCKET_PATH_BYTES } from './http/http-server.ts'
import { AuditTrail } from './store/audit-trail.ts'
import { isWritable, lockFolder } from './store/data-folder.ts'
import type { Database } from './store/database.ts'

/** Beside the drain. */
const STOP_WITHIN_MS = 5_000
/** Between two looks whether the folder of the local socket can be written. */
const SOCKET_RETRY_MS = 5_000

export interface DaemonOptions {
  readonly config: Config['agent']
  readonly version: string
  /** Listeners of the same process, where no tunnel may lead: a request would go in circles. */
  readonly neighbours?: readonly ListenAddress[]
  /** What `GET /doctor` answers. */
  readonly examine: (agent: Agent, database: Database) => ReturnType<Examine>
  /** Of an installed program, which may be on trial. */
  readonly update?: OwnUpdate | undefined
  readonly log: Logger
  /** The end of what goes to `log`. */
  readonly logTail: LogTail
  readonly clock: Clock
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
}

/**
 * Puts the agent together and starts it: what is opened goes on the closer. When this resolves,
 * the API listens and the restore is under way; it never waits for the service.
 */
export async function startDaemon(options: DaemonOptions, closer: Closer): Promise<Daemon> {
  const { config, version, neighbours = [], log, clock } = options
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
  const given = config.apiToken
  const tokens = new ApiTokens({ database, dataDir, given, log, clock })
  await trail.start()
  openOwnerToken({ tokens, trail, log })
  if (config.apiTokenHash !== undefined) {
    const kept = new KeptValues(database)
    adoptProvisionedToken({ hash: config.apiTokenHash, tokens, kept, trail, log })
  }
  const socketPath = openSocketFolder(dataDir, closer)

  const agent = new Agent({
    database,
    connector: new NgrokConnector({
      ...{ version, log, heartbeat: link.heartbeat },
      hasLanes: !link.isMetered,
      isNoDelay: link.isNoDelay,
    }),
    dataDir,
    authtoken: {
      files: config.authtokenFile === undefined ? [] : [config.authtokenFile],
      value: config.authtoken,
    },
    serverAddrs: config.serverAddrs,
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
      drainMs,
      link: { ...DEFAULT_TIMINGS.link, duplicateRetryMs: link.duplicateRetryMs },
      tunnel: { ...DEFAULT_TIMINGS.tunnel, conflictRetryMs: link.conflictRetryMs },
      probe: { ...DEFAULT_TIMINGS.probe, ...link.probe },
    },
    version,
    log,
    clock,
    onPoisoned: () => broken.resolve('the SDK does not respond'),
  })

  const feed = new EventFeed({ agent, database, version, clock, log })
  const common: ApiOptions = {
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
  if (domain !== undefined) {
    const listener = createApi(common, tunnelListener(domain))
    const server = new HttpServer({ name: 'agent API', listener, target: { socketPath }, log })
    await closer.own('public API', server, (it) => it.stop()).start()
  }
  await closer.own('agent API', local, (it) => it.stop()).start()
  if (pageServer) await closer.own('page', pageServer, (it) => it.stop()).start()
  const desk = localSocket(config)
  const openDesk = async () => {
    const listener = createApi(common, commandLineListener())
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
    closer.own('local socket', await openDesk(), (it) => it.stop())
  } else {
    log.warn({ path: desk.socketPath }, 'no local socket, the command line needs a token')
    const openFirst = () => {
      // Nothing in the folder could be locked. Another agent may have it since.
      lock.reclaim()
      return openDesk()
    }
    const later = openWhenWritable({ path: desk.socketPath, open: openFirst, log, clock })
    closer.own('local socket', later, (it) => it.stop())
  }
  const withinMs = drainMs + STOP_WITHIN_MS
  await closer.own('agent', agent, (it) => it.stop(), withinMs).start()
  closer.own('events', feed, (it) => it.stop())
  // What was restored was not made now.
  feed.start()
  return {
    agent,
    database,
    address: { host: listen.host, port: local.port },
    apiToken: tokens.ownerPlain,
    broken: broken.promise,
  }
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

interface LaterOptions {
  readonly path: string
  readonly open: () => Promise<HttpServer>
  readonly log: Logger
  readonly clock: Clock
}

/** Opens the socket once its folder can be written: a disk may be mounted for writing again. */
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
        log.info({ path }, 'the local socket is there')
        return server
      } catch (error) {
        if (!isTold) log.warn({ err: error, path }, 'still no local socket')
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
