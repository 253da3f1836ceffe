import { once } from 'node:events'
import { connect, type SecureContext } from 'node:tls'
import { systemClock } from '../src/base/clock.ts'
import type { ListenAddress } from '../src/base/listen-address.ts'
import { ErrorCode } from '../src/muxado/error-code.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE, Heartbeat } from '../src/muxado/heartbeat.ts'
import { call } from '../src/muxado/rpc.ts'
import { acceptTyped, Session } from '../src/muxado/session.ts'
import type { Stream } from '../src/muxado/stream.ts'

const AUTH = 0
const BIND = 1
const RPC_LIMITS = { maxBytes: 262_144, deadlineMs: 30_000, clock: systemClock }
/** As the SDK beats. */
const HEARTBEAT_MS = 10_000
const HEARTBEAT_TOLERANCE_MS = 15_000

export interface Device {
  readonly authtoken: string
  /** The public name that it binds. */
  readonly host: string
  /** What the device says of itself; its id alone unless given. */
  readonly metadata?: string
}

export interface AgentServer {
  readonly address: ListenAddress
  /** Trusts the gateway's CA. */
  readonly trust: SecureContext
}

/** A device's agent on the wire without the SDK, so that thousands fit into one process. */
export class WireAgent {
  readonly #session: Session
  /** Milliseconds from the first packet to the end of the TLS handshake. */
  readonly handshakeMs: number
  /** Milliseconds of the Auth message and its answer; undefined before. */
  authMs: number | undefined

  private constructor(session: Session, handshakeMs: number) {
    this.#session = session
    this.handshakeMs = handshakeMs
  }

  static async connect(
    { address, trust }: AgentServer,
    onVisit: (stream: Stream) => void = (stream) => stream.retire(),
  ): Promise<WireAgent> {
    const startedAt = performance.now()
    const socket = connect({ ...address, secureContext: trust, servername: 'localhost' })
    await once(socket, 'secureConnect')
    const handshakeMs = performance.now() - startedAt
    const session = new Session(socket, {
      role: 'client',
      accept: acceptTyped((type, stream) => {
        if (type === HEARTBEAT_STREAM_TYPE) echoHeartbeat(stream)
        else onVisit(stream)
      }),
    })
    return new WireAgent(session, handshakeMs)
  }

  /** Resolves when the connection is over. */
  get closed(): Promise<unknown> {
    return this.#session.closed
  }

  /** Authenticates, and beats like the SDK from then on. */
  async authenticate({ authtoken, host, metadata }: Device): Promise<void> {
    const startedAt = performance.now()
    await this.#call(AUTH, {
      Version: ['3', '2'],
      ClientId: '',
      Extra: {
        AuthToken: authtoken,
        OS: 'linux',
        Arch: 'arm64',
        Version: '1.7.0',
        Hostname: host,
        Metadata: metadata ?? JSON.stringify({ device_id: host }),
      },
    })
    this.authMs = performance.now() - startedAt
    const heartbeat = new Heartbeat({
      session: this.#session,
      clock: systemClock,
      intervalMs: HEARTBEAT_MS,
      toleranceMs: HEARTBEAT_TOLERANCE_MS,
      onLatency() {},
      onMissed: () => void this.end(),
    })
    heartbeat.start()
    void this.closed.then(() => heartbeat.stop())
  }

  async bind({ host }: Pick<Device, 'host'>): Promise<void> {
    await this.#call(BIND, {
      Id: '',
      Proto: 'https',
      ForwardsTo: 'localhost:80',
      Opts: { Domain: host },
      Extra: { Metadata: '' },
    })
  }

  end(): Promise<void> {
    return this.#session.goAway(ErrorCode.none, 'done')
  }

  async #call(type: number, message: unknown): Promise<void> {
    const answer = (await call(this.#session, type, message, RPC_LIMITS)) as { Error?: string }
    if (answer.Error) throw new Error(answer.Error)
  }
}
