import { randomBytes, randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import type { LinkSettings } from '../../settings/agent-settings.ts'
import { type Heartbeat, heartbeatOf } from '../timings.ts'

/** Identity of this device and process at the service. */
export class Identity {
  /** Lets our gateway distinguish another session of this process from another device. */
  readonly #instance = randomUUID()
  /** Sent to our gateway, which then sends no heartbeats. Undefined: the gateway sends heartbeats. */
  readonly #heartbeat: Heartbeat | undefined
  #deviceId = ''

  constructor(link: LinkSettings) {
    const isOurs = link.isMetered || link.heartbeatS !== undefined
    this.#heartbeat = isOurs ? heartbeatOf(link) : undefined
  }

  /** Empty until it is loaded. */
  get deviceId(): string {
    return this.#deviceId
  }

  load(dataDir: string, log: Logger): void {
    this.#deviceId = loadDeviceId(dataDir, log)
  }

  /** Metadata of each session, JSON text. */
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

const FORM = /^dev_[0-9a-f]{24}$/

/**
 * Returns the device's identity at the service. It is created once and stored in the data directory. The
 * service uses it to distinguish a returning device from a second one, and to end its previous session.
 */
export function loadDeviceId(dataDir: string, log: Logger): string {
  const path = join(dataDir, 'device-id')
  const kept = readIfThere(path)?.trim()
  if (kept && FORM.test(kept)) return kept
  if (kept !== undefined) log.warn({ path }, 'device id is damaged, creating a new id')
  const id = newDeviceId()
  try {
    writeFileDurably(path, `${id}\n`)
  } catch (error) {
    log.warn({ err: error }, 'cannot save the device id, the next start creates another id')
  }
  return id
}

/** Gives this device a new identity at the service, from the next start of the agent on. */
export function resetDeviceId(dataDir: string): {
  readonly before: string | undefined
  readonly after: string
} {
  const path = join(dataDir, 'device-id')
  const before = readIfThere(path)?.trim()
  const after = newDeviceId()
  writeFileDurably(path, `${after}\n`)
  return { before: before !== undefined && FORM.test(before) ? before : undefined, after }
}

function newDeviceId(): string {
  return `dev_${randomBytes(12).toString('hex')}`
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
