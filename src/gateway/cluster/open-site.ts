import { randomBytes, randomUUID, X509Certificate } from 'node:crypto'
import { existsSync, readFileSync, renameSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { writeFileDurably } from '../../base/file.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { prepareDataFolder } from '../../store/data-folder.ts'
import type { Migration } from '../../store/migrations.ts'
import { createSecretsKey, SECRETS_KEY } from '../access/secret-seal.ts'
import { createPrivateKeyPem } from '../records/private-key.ts'
import { type AdmissionOptions, admit, admitAgain } from './admission.ts'
import { CERTIFICATE_STEPS } from './certificate-steps.ts'
import { CLUSTER_STEPS } from './nodes/cluster-schema.ts'
import { forgottenAt } from './nodes/forgotten-nodes.ts'
import { CLUSTER_PROTOCOL, type NodeFacts, OLDEST_PROTOCOL } from './nodes/node-facts.ts'
import { MATERIAL_STEPS, SharedMaterial } from './nodes/shared-material.ts'
import { fingerprintOf } from './peers/cluster-authority.ts'
import type { PublicPorts } from './peers/greeting.ts'
import { type PeerIdentity, readIdentity } from './peers/peer-identity.ts'
import { DatabaseError } from './postgres/database-error.ts'
import { DatabaseFollower } from './postgres/database-follower.ts'
import { PostgresConnection } from './postgres/postgres-connection.ts'
import type { PostgresServer } from './postgres/postgres-session.ts'
import { warnOfStrangers } from './postgres/role-privileges.ts'
import { migrateSchema, type SchemaStep } from './postgres/schema.ts'
import { RECORD_STEPS } from './replication/record-log.ts'
import { SharedDatabase } from './replication/shared-database.ts'
import { databaseFiles, requireReadable } from './service-file.ts'

/**
 * Secrets of the site, equal at all nodes: devices trust the CA, sign-ins are sealed with the key for log-ins,
 * and secrets of policies with theirs.
 */
const SECRETS: Readonly<Record<string, () => Promise<string>>> = {
  'ca.key': createPrivateKeyPem,
  'login.key': async () => `${randomBytes(32).toString('base64url')}\n`,
  [SECRETS_KEY]: async () => createSecretsKey(),
}
/** Files that depend on a key, and are made again for another key. */
const MADE_OF: Readonly<Record<string, string>> = { 'ca.key': 'ca.pem' }

/** Whether a folder has all that it takes without the database. Earlier versions had no key for secrets. */
function hasSecrets(folder: string): boolean {
  const needed = Object.keys(SECRETS).filter((name) => name !== SECRETS_KEY)
  return needed.every((name) => existsSync(join(folder, name)))
}

/**
 * Stores the secrets of the site in a directory. The first node's secrets become those of the site. Other
 * local secrets are renamed. Throws DatabaseErrors.
 */
async function shareSecrets(
  folder: string,
  material: Pick<SharedMaterial, 'findSecret' | 'keepSecret'>,
  log: Logger,
): Promise<void> {
  for (const [name, make] of Object.entries(SECRETS)) {
    const path = join(folder, name)
    const own = existsSync(path) ? readFileSync(path, 'utf8') : undefined
    const kept =
      (await material.findSecret(name)) ?? (await material.keepSecret(name, own ?? (await make())))
    if (kept === own) continue
    if (own !== undefined) {
      log.warn({ path }, 'the cluster has another key: the local file was moved aside')
      putAside(path)
    }
    const made = MADE_OF[name]
    if (made !== undefined && existsSync(join(folder, made))) putAside(join(folder, made))
    writeFileDurably(path, kept)
  }
}

function putAside(path: string): void {
  renameSync(path, `${path}.before-joining`)
}

/** Schema of everything in PostgreSQL. */
export const SITE_STEPS: readonly SchemaStep[] = [
  ...RECORD_STEPS,
  ...CLUSTER_STEPS,
  ...MATERIAL_STEPS,
  ...CERTIFICATE_STEPS,
]

export interface SiteOptions {
  readonly server: PostgresServer
  readonly peerListen: ListenAddress
  readonly peerAddress: ListenAddress
  readonly joinTokenPath: string | undefined
  /** The gateway's data folder. */
  readonly folder: string
  readonly ports: PublicPorts
  /** Addresses for agents. */
  readonly agentAddresses: readonly string[]
  readonly version: string
  readonly migrations: readonly Migration[]
  readonly applicationId: number
  readonly log: Logger
  readonly clock: Clock
}

/** The identity of this gateway, and the shared parts of its site. */
export interface Site {
  readonly folder: string
  readonly identity: PeerIdentity
  readonly facts: NodeFacts
  readonly database: SharedDatabase
  readonly material: SharedMaterial
  /** For short changes: claims, orders, material. */
  readonly connection: PostgresConnection
  readonly follower: DatabaseFollower
  stop(): Promise<void>
}

/**
 * Joins the site, or continues as its node. While PostgreSQL is unreachable, it uses its local copy. Throws a
 * StartError.
 */
export async function openSite(options: SiteOptions): Promise<Site> {
  const { server, folder, ports, version, peerAddress: peer, log, clock } = options
  const { agentAddresses } = options
  prepareDataFolder(folder, log)
  for (const path of databaseFiles(server)) requireReadable(path, folder)
  const connection = new PostgresConnection({ server, name: 'claims', log, clock })
  const follower = new DatabaseFollower({ server, name: 'follower', log, clock })
  const stop = async () => {
    await follower.stop()
    await connection.stop()
  }
  try {
    const material = new SharedMaterial(connection)
    const identity = await enter(options, connection, material)
    const facts = {
      ...{
        name: hostname(),
        version,
        ports: { ...ports },
        peer: { host: peer.host, port: peer.port },
        agentAddresses: [...agentAddresses],
      },
      ...{ protocol: CLUSTER_PROTOCOL, oldestProtocol: OLDEST_PROTOCOL },
      ...{ instance: randomUUID(), startedAt: clock.now() },
    }
    const database = await SharedDatabase.open({
      ...options,
      notices: follower,
      steps: SITE_STEPS,
      path: join(folder, 'replica.db'),
      node: identity.nodeId,
    })
    follower.start()
    const common = { folder, identity, facts, database, material, connection, follower }
    return { ...common, stop: () => database.stop().then(stop) }
  } catch (error) {
    await stop()
    if (error instanceof DatabaseError) throw new StartError(error.message, { cause: error })
    throw error
  }
}

/** Throws a StartError and DatabaseErrors. */
async function enter(
  options: SiteOptions,
  connection: PostgresConnection,
  material: SharedMaterial,
): Promise<PeerIdentity> {
  const { server, folder, log } = options
  const known = readIdentity(folder)
  connection.start()
  try {
    await migrateSchema({ server, name: 'schema' }, SITE_STEPS)
    await warnOfStrangers(connection, log)
    const joining = { ...options, material }
    const identity = known ? await stay(known, joining, connection) : await admit(joining)
    await shareSecrets(folder, material, log)
    return identity
  } catch (error) {
    const isAway = error instanceof DatabaseError && error.isTransient
    if (!isAway || !known || !hasSecrets(folder)) throw error
    log.warn({ err: error }, 'starting with the local copy of the records')
    return known
  }
}

/** Keeps the known identity, unless the node was removed from the cluster. Throws a StartError. */
async function stay(
  known: PeerIdentity,
  joining: AdmissionOptions & { readonly material: SharedMaterial },
  connection: PostgresConnection,
): Promise<PeerIdentity> {
  const authority = await joining.material.findAuthority()
  // The other nodes refuse its certificate. It would be up, and forward no visitor.
  if (!isSame(authority?.certPem, known.authorityPem)) throw new OtherClusterError(joining.folder)
  const at = await forgottenAt(connection, known.nodeId)
  return at === undefined ? known : admitAgain(joining, known.nodeId, at)
}

function isSame(pem: string | undefined, other: string): boolean {
  if (pem === undefined) return false
  return fingerprintOf(new X509Certificate(pem)) === fingerprintOf(new X509Certificate(other))
}

/** Thrown for the data directory of another cluster, such as that of before a restore. */
class OtherClusterError extends StartError {
  constructor(folder: string) {
    const old = `${folder}.old`
    super(
      `${folder} belongs to another cluster than GATEWAY_DATABASE_URL. If the database is the right one, ` +
        'stop this gateway and move the contents of the directory away: ' +
        `sudo sh -c 'mkdir -m 700 ${old} && mv ${folder}/* ${old}/'. Then create a token with ` +
        '`device-agent gateway join-token` on a running gateway. Write it to the file of ' +
        'GATEWAY_JOIN_TOKEN_FILE here and start this gateway.',
    )
  }
}
