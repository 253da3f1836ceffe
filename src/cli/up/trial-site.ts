import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { Closer } from '../../base/closer.ts'
import { createDeferred } from '../../base/deferred.ts'
import { writeFileDurably } from '../../base/file.ts'
import { formatListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { type Config, parseConfig } from '../../config.ts'
import { DatabaseError } from '../../gateway/postgres/database-error.ts'
import { PostgresSession } from '../../gateway/postgres/postgres-session.ts'
import { makeJoinToken } from '../../gateway/site/make-join-token.ts'
import { prepareDataFolder } from '../../store/data-folder.ts'
import type { CommandContext } from '../command-context.ts'
import type { GatewayReady } from '../gateway.ts'
import { GatewayProcess } from './gateway-process.ts'
import { findTrialListens, type TrialListens, type VisitorPorts } from './trial-listens.ts'

const TOKEN_LIFE_MS = 3_600_000
/** For all that a gateway closes beside the requests under way. */
const STOP_MS = 9_000
/** Of somebody who manages this process, and not those that it starts. */
const OURS_ALONE = ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'LISTEN_FDS', 'LISTEN_PID'] as const
/** Beside the data of the first gateway. */
const PORTS_FILE = 'trial-ports.json'
const VisitorPortsSchema = z.object({ http: z.int(), https: z.int() })
const ANY_PORT = '127.0.0.1:0'

export interface TrialSiteOptions {
  readonly count: number
  /** As `GATEWAY_DATABASE_URL`; undefined where nobody gave one. */
  readonly databaseUrl: string | undefined
  readonly environment: CommandContext['environment']
  /** Where one gateway would listen for visitors: the ports, if they are free. */
  readonly usual: Pick<Config['gateway'], 'httpListen' | 'httpsListen'>
  readonly stderr: NodeJS.WritableStream
  /** Of the gateways. */
  readonly logLevel: string
  readonly log: Logger
}

/** One gateway of the trial. */
export interface TrialGateway {
  readonly number: number
  readonly pid: number
  readonly dataDir: string
  readonly ready: GatewayReady
}

export interface TrialSite {
  readonly gateways: readonly [TrialGateway, ...TrialGateway[]]
  /** Resolves with a reason when none of them runs any more. */
  readonly broken: Promise<string>
}

/** Several gateways on one PostgreSQL, a process each, on this machine. Throws a StartError. */
export async function startTrialSite(
  options: TrialSiteOptions,
  closer: Closer,
): Promise<TrialSite> {
  const { count, log } = options
  const config = await examine(options)
  const portsPath = join(`${config.dataDir}-1`, PORTS_FILE)
  const listens = await findTrialListens(count, keptPorts(portsPath) ?? usualPorts(options))
  const broken = createDeferred<string>()
  const processes = new Set<GatewayProcess>()
  let isStopping = false
  // All at the same time: each ends what is under way at it.
  const stop = async () => {
    isStopping = true
    await Promise.all([...processes].map((it) => it.stop()))
  }
  closer.own('gateways', processes, stop, config.drainMs + STOP_MS)
  // A terminal that is closed; they are in groups of their own.
  const onHangup = () => process.exit(129)
  closer.own('hangup', process.once('SIGHUP', onHangup), (it) => void it.off('SIGHUP', onHangup))
  const startOne = async (at: number): Promise<TrialGateway> => {
    const dataDir = `${config.dataDir}-${at + 1}`
    const environment = await settingsOf(at, { ...options, config, listens, dataDir })
    const started = GatewayProcess.start(environment)
    processes.add(started)
    const ready = await started.ready()
    started.passOn(options.stderr)
    const number = at + 1
    void started.ended.then((how) => {
      processes.delete(started)
      if (isStopping) return
      log.warn(
        { gateway: number, how },
        'a gateway has ended, its devices connect to the other gateways',
      )
      if (processes.size === 0) broken.resolve('all gateways have ended')
    })
    return { number, pid: started.pid, dataDir, ready }
  }
  prepareDataFolder(dirname(portsPath), log)
  const { http, https } = listens
  writeFileDurably(portsPath, `${JSON.stringify({ http, https })}\n`)
  // The first makes the site that the others join.
  const first = await startOne(0)
  const others = await Promise.all(listens.hosts.slice(1).map((_, at) => startOne(at + 1)))
  return { gateways: [first, ...others], broken: broken.promise }
}

/** Those of the last start: one that was killed is still said to listen there. */
function keptPorts(path: string): VisitorPorts | undefined {
  if (!existsSync(path)) return undefined
  const kept = VisitorPortsSchema.safeParse(parseJson(readFileSync(path, 'utf8')))
  return kept.success ? kept.data : undefined
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Somebody has changed it: the usual ports are as good.
    return undefined
  }
}

const usualPorts = ({ usual: { httpListen, httpsListen } }: TrialSiteOptions): VisitorPorts => ({
  http: httpListen.port,
  https: httpsListen.port,
})

/** The settings of gateways, with a database that lets them in. Throws a StartError. */
async function examine({ databaseUrl, environment }: TrialSiteOptions): Promise<Config['gateway']> {
  if (databaseUrl === undefined) {
    throw new StartError(
      'Several gateways need a shared PostgreSQL database. Set --database-url postgres://user@host/database or GATEWAY_DATABASE_URL to an empty database.',
    )
  }
  const { gateway } = parseConfig({
    ...environment,
    GATEWAY_DATABASE_URL: databaseUrl,
    GATEWAY_PEER_LISTEN: '127.0.0.1:1',
    GATEWAY_PEER_ADDRESS: undefined,
    GATEWAY_JOIN_TOKEN_FILE: undefined,
    // Others are found for the trial.
    GATEWAY_HTTP_LISTEN: undefined,
    GATEWAY_HTTPS_LISTEN: undefined,
  })
  const { server } = serverOf(gateway)
  try {
    const session = await PostgresSession.open({ server, name: 'up' })
    session.close()
  } catch (error) {
    if (!(error instanceof DatabaseError)) throw error
    throw new StartError(error.message, { cause: error })
  }
  return gateway
}

function serverOf({ shared }: Config['gateway']) {
  if (!shared) throw new Error('no database is set')
  return shared
}

async function settingsOf(
  at: number,
  {
    environment,
    databaseUrl,
    logLevel,
    config,
    listens: { hosts, http, https, peers },
    dataDir,
    log,
  }: TrialSiteOptions & {
    readonly config: Config['gateway']
    readonly listens: TrialListens
    readonly dataDir: string
  },
): Promise<Record<string, string | undefined>> {
  const host = hosts[at] ?? ''
  const peer = formatListenAddress({ host, port: peers[at] ?? 0 })
  prepareDataFolder(dataDir, log)
  const joinTokenPath = join(dataDir, 'join-token')
  if (at > 0) {
    // At each start: a gateway that was forgotten joins anew, the others do not look at it.
    const expiresAt = systemClock.now() + TOKEN_LIFE_MS
    const { server } = serverOf(config)
    const token = await makeJoinToken({ server, expiresAt, log, clock: systemClock })
    writeFileDurably(joinTokenPath, `${token.reveal()}\n`)
  }
  const settings = {
    ...environment,
    ...{ GATEWAY_DATABASE_URL: databaseUrl, GATEWAY_DATA_DIR: dataDir },
    ...{ GATEWAY_PEER_LISTEN: peer, GATEWAY_PEER_ADDRESS: undefined },
    GATEWAY_JOIN_TOKEN_FILE: existsSync(joinTokenPath) ? joinTokenPath : undefined,
    GATEWAY_HTTP_LISTEN: formatListenAddress({ host, port: http }),
    GATEWAY_HTTPS_LISTEN: formatListenAddress({ host, port: https }),
    ...{ GATEWAY_AGENT_LISTEN: ANY_PORT, GATEWAY_API_LISTEN: ANY_PORT },
    LOG_LEVEL: logLevel,
  }
  for (const name of OURS_ALONE) delete (settings as Record<string, string | undefined>)[name]
  return settings
}
