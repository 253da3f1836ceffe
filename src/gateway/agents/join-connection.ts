import type { TLSSocket } from 'node:tls'
import type { SharedConnection } from '../../base/net/connection-shares.ts'
import {
  Claim,
  JOIN_VERSION,
  type JoinRefusal,
  MAX_CLAIM_BYTES,
  type Refusal,
  VersionOf,
} from '../../join/join-messages.ts'
import { ChannelError, MessageChannel, messageOf } from '../../join/message-channel.ts'
import { JoinRefused } from '../resources/invites/device-admission.ts'
import type { Invites } from '../resources/invites/invites.ts'

/** Devices that join at the same time. */
export const MAX_JOINS = 200

export interface JoinConnectionOptions {
  readonly invites: Pick<Invites, 'greeting' | 'join'>
  /** Address of the device without the port. */
  readonly address: string
  readonly deadlineMs: number
}

/** A device that joins: one message of the gateway, one of the device, one answer. */
export class JoinConnection implements SharedConnection {
  readonly #socket: TLSSocket
  readonly #options: JoinConnectionOptions
  readonly #channel: MessageChannel
  readonly #closed = new AbortController()
  readonly idleSince = performance.now()
  stage: SharedConnection['stage'] = 'idle'

  constructor(socket: TLSSocket, options: JoinConnectionOptions) {
    const { deadlineMs } = options
    this.#socket = socket
    this.#options = options
    this.#channel = new MessageChannel(socket, { maxBytes: MAX_CLAIM_BYTES, deadlineMs })
    socket.once('close', () => this.#closed.abort())
  }

  /** Serves the connection. Resolves when the answer is sent; never rejects. */
  async serve(): Promise<void> {
    const { invites } = this.#options
    this.#channel.send(invites.greeting())
    try {
      this.#channel.send(await this.#answer(await this.#channel.receive()))
    } catch (error) {
      if (!(error instanceof ChannelError)) throw error
      if (error.fault !== 'malformed') return
      this.#channel.send(refusal('invalid-request', 'The gateway cannot read this request.'))
    } finally {
      this.#channel.end()
    }
  }

  async #answer(message: unknown): Promise<object> {
    const { invites, address } = this.#options
    if (messageOf(VersionOf, message).v !== JOIN_VERSION) {
      return refusal('newer-device', 'This device is newer than the gateway. Update the gateway.')
    }
    const claim = messageOf(Claim, message)
    // Silent connections are given up first.
    this.stage = 'awaited'
    try {
      return await invites.join(claim, address, this.#closed.signal)
    } catch (error) {
      if (error instanceof JoinRefused) return refusal(error.code, error.message)
      throw error
    }
  }

  yieldPlace(): void {
    this.#socket.destroy()
  }
}

function refusal(error: JoinRefusal, message: string): Refusal {
  return { v: JOIN_VERSION, error, message: message.slice(0, 1_000) }
}
