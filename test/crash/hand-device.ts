import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type TLSSocket } from 'node:tls'
import { systemClock } from '../../src/base/clock.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE } from '../../src/muxado/heartbeat.ts'
import { call } from '../../src/muxado/rpc.ts'
import { acceptTyped, Session } from '../../src/muxado/session.ts'
import type { GatewayReady } from '../helpers/site.ts'

const ANSWER_MS = 10_000

/** A device that authenticates by hand, and can hang or leave at once, which the SDK cannot. */
export class HandDevice {
  readonly #socket: TLSSocket

  private constructor(socket: TLSSocket) {
    this.#socket = socket
  }

  /** Rejects when it is refused, or the gateway goes. */
  static async connect(
    { agent_listen, ca_cert }: GatewayReady,
    {
      authtoken,
      deviceId,
      isSilent = false,
    }: {
      authtoken: string
      deviceId: string
      /** It answers no heartbeat. */
      isSilent?: boolean
    },
  ): Promise<HandDevice> {
    const [host, port] = agent_listen.split(':')
    const socket = connect({
      host,
      port: Number(port),
      ca: readFileSync(ca_cert),
      servername: 'localhost',
    })
    socket.on('error', () => {})
    const broken = once(socket, 'close').then((): never => {
      throw new Error('the connection is gone')
    })
    broken.catch(() => {})
    await Promise.race([once(socket, 'secureConnect'), broken])
    const device = new HandDevice(socket)
    const session = new Session(socket, {
      role: 'client',
      accept: acceptTyped((type, stream) => {
        if (type === HEARTBEAT_STREAM_TYPE && !isSilent) echoHeartbeat(stream)
      }),
    })
    const bounds = { maxBytes: 65_536, deadlineMs: ANSWER_MS, clock: systemClock }
    const extra = {
      AuthToken: authtoken,
      OS: 'linux',
      Arch: 'arm64',
      Version: '1.7.0',
      Metadata: JSON.stringify({ device_id: deviceId }),
    }
    const asked = call(session, 0, { Version: ['3', '2'], ClientId: '', Extra: extra }, bounds)
    const { Error: refusal } = (await Promise.race([asked, broken])) as { Error?: string }
    if (refusal) throw new Error(refusal)
    return device
  }

  leave(): void {
    this.#socket.destroy()
  }
}
