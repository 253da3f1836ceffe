import { randomUUID } from 'node:crypto'
import type { Logger } from '../../base/logger.ts'
import { loadDeviceId } from './device-id.ts'

export interface IdentityOptions {
  /** Told to our gateway, which then sends no heartbeats of its own; unset: it sends them. */
  readonly heartbeat?: { readonly intervalS: number; readonly toleranceS: number } | undefined
}

/** Which device this is to the service, and which process of it. */
export class Identity {
  /** With it our gateway tells another session of this process from another device. */
  readonly #instance = randomUUID()
  readonly #heartbeat: IdentityOptions['heartbeat']
  #deviceId = ''

  constructor({ heartbeat }: IdentityOptions) {
    this.#heartbeat = heartbeat
  }

  /** Empty until it was loaded. */
  get deviceId(): string {
    return this.#deviceId
  }

  load(dataDir: string, log: Logger): void {
    this.#deviceId = loadDeviceId(dataDir, log)
  }

  /** What each session says of itself, JSON text. */
  get metadata(): string {
    const heartbeat = this.#heartbeat
    return JSON.stringify({
      device_id: this.#deviceId,
      instance: this.#instance,
      tells_complete: true,
      ...(heartbeat && {
        heartbeat: { interval_s: heartbeat.intervalS, tolerance_s: heartbeat.toleranceS },
      }),
    })
  }
}
