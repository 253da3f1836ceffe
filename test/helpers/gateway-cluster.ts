import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import { createLogger } from '../../src/base/logger.ts'
import { ClusterNode } from '../../src/gateway/cluster/cluster-node.ts'
import { makeJoinToken } from '../../src/gateway/cluster/make-join-token.ts'
import type { Gateway } from '../../src/gateway/gateway.ts'
import type { DatabaseAddress } from '../../src/settings/database-url.ts'
import { type RunningGateway, type RunningOptions, startGateway } from './running-gateway.ts'
import { lastingAddress } from './some-ports.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** Faster than in earnest, and no busy machine ends a lease. */
const TIMINGS = { beatMs: 200, retryMs: 50, lookMs: 50 }
const LEASE_MS = 60_000

interface Ports {
  readonly http: number
  readonly https: number
}

/** Gateways in this process that share a database: each on a loopback address of its own. */
export class GatewayCluster {
  readonly #address: DatabaseAddress
  readonly #leaseMs: number
  readonly #ports: Ports
  #count = 0

  private constructor(address: DatabaseAddress, leaseMs: number, ports: Ports) {
    this.#address = address
    this.#leaseMs = leaseMs
    this.#ports = ports
  }

  /** A shorter lease is for those who wait for its end. */
  static open(address: DatabaseAddress, leaseMs = LEASE_MS): GatewayCluster {
    const ports = { http: lastingAddress().port, https: lastingAddress().port }
    return new GatewayCluster(address, leaseMs, ports)
  }

  /**
   * One more gateway; it stops with the running test. `through` leads it to the database; `joins: false` is
   * for one that has a folder, and gets no new token.
   */
  async start({
    peer: given,
    through,
    joins = true,
    ...options
  }: RunningOptions & {
    peer?: { readonly listen: ListenAddress; readonly address: ListenAddress }
    through?: ListenAddress
    joins?: boolean
  } = {}): Promise<RunningGateway> {
    this.#count += 1
    const address = { ...this.#address, ...through }
    const host = `127.0.0.${this.#count}`
    const dataDir = options.dataDir ?? temporaryFolder()
    const joinTokenPath = join(dataDir, 'join-token')
    const server = { address, password: address.password, passwordPath: undefined }
    if (this.#count > 1 && joins) {
      const expiresAt = systemClock.now() + 60_000
      const log = createLogger('silent')
      const token = await makeJoinToken({ server, expiresAt, log, clock: systemClock })
      writeFileSync(joinTokenPath, token.reveal())
    }
    const timings = { ...TIMINGS, leaseMs: this.#leaseMs }
    const own = given ? given.listen : { host, port: lastingAddress().port }
    const peer = given ?? { listen: own, address: own }
    return startGateway({
      dataDir,
      httpListen: { host, port: this.#ports.http },
      httpsListen: { host, port: this.#ports.https },
      shared: {
        server,
        ...{ peerListen: peer.listen, peerAddress: peer.address, joinTokenPath, timings },
      },
      ...options,
    })
  }
}

/** The node that a gateway is of a cluster; undefined where it is the only gateway. */
export function nodeIn({ parts }: Pick<Gateway, 'parts'>): ClusterNode | undefined {
  return parts.member instanceof ClusterNode ? parts.member : undefined
}
