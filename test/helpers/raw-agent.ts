import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type TLSSocket } from 'node:tls'
import { onTestFinished } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE } from '../../src/muxado/heartbeat.ts'
import { call } from '../../src/muxado/rpc.ts'
import { acceptTyped, Session } from '../../src/muxado/session.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import type { RunningGateway } from './running-gateway.ts'

/** Any JSON that a gateway answers with. */
export interface RpcAnswer {
  readonly Error?: string
  readonly [key: string]: unknown
}

export interface RawAgentOptions {
  /** False: heartbeats are swallowed. */
  readonly isAlive?: boolean
  readonly onStream?: (type: number, stream: Stream) => void
  /** Hears a line for each frame. */
  readonly trace?: (line: string) => void
}

/** An agent that speaks the wire protocol by hand: for what the SDK would never send. */
export class RawAgent {
  readonly session: Session
  readonly #socket: TLSSocket

  private constructor(session: Session, socket: TLSSocket) {
    this.session = session
    this.#socket = socket
  }

  static async connect(
    { addresses }: RunningGateway,
    { isAlive = true, onStream, trace }: RawAgentOptions = {},
  ): Promise<RawAgent> {
    const socket = connect({
      ...addresses.agent,
      ca: readFileSync(addresses.caCertPath),
      servername: 'localhost',
    })
    await once(socket, 'secureConnect')
    socket.on('error', () => {})
    const session = new Session(socket, {
      role: 'client',
      ...(trace && { trace }),
      accept: acceptTyped((type, stream) => {
        if (type !== HEARTBEAT_STREAM_TYPE) onStream?.(type, stream)
        else if (isAlive) echoHeartbeat(stream)
      }),
    })
    onTestFinished(() => session.goAway(ErrorCode.none, 'the test is over'))
    return new RawAgent(session, socket)
  }

  /** The connection breaks, with no goodbye. */
  cut(): void {
    this.#socket.destroy()
  }

  async rpc(type: number, message: unknown): Promise<RpcAnswer> {
    const limits = { maxBytes: 1_000_000, deadlineMs: 30_000, clock: systemClock }
    return (await call(this.session, type, message, limits)) as RpcAnswer
  }

  auth(authtoken: string, extra: object = {}, clientId = ''): Promise<RpcAnswer> {
    return this.rpc(0, {
      Version: ['3', '2'],
      ClientId: clientId,
      Extra: { AuthToken: authtoken, OS: 'linux', Arch: 'arm64', Version: '1.7.0', ...extra },
    })
  }

  bind(domain: string, more: object = {}): Promise<RpcAnswer> {
    return this.rpc(1, {
      Id: '',
      Proto: 'https',
      ForwardsTo: 'localhost:1',
      Opts: { Domain: domain },
      Extra: { Metadata: '' },
      ...more,
    })
  }
}

/** The code of a refusal; it stands on a line of its own. */
export function codeOf({ Error: text }: RpcAnswer): string | undefined {
  return text?.split('\n').find((line) => /^ERR_NGROK_\d+$/.test(line))
}
