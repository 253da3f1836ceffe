import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { buffer } from 'node:stream/consumers'
import { createLocalJWKSet, type JSONWebKeySet, type JWTVerifyGetKey } from 'jose'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { download, OutboundError } from './outbound.ts'
import { filePath, type PolicyReach } from './outbound-allow.ts'

interface RenewableOptions<T> {
  /** Rejects within seconds, when it cannot be read. */
  readonly read: () => Promise<T>
  /** How long it is used before it is read again. */
  readonly freshMs: number
  /** Pause after a failure. A forced read also waits this long after any read. */
  readonly pauseMs: number
  /** Why there is nothing during the pause after a failure. */
  readonly paused: () => Error
  readonly clock: Clock
}

/** Something that others publish, read when it is needed and kept for a while. */
export class Renewable<T> {
  readonly #options: RenewableOptions<T>
  #value: { readonly content: T; readonly readAt: number } | undefined
  #failedAt = Number.NEGATIVE_INFINITY
  #reading: Promise<T> | undefined

  constructor(options: RenewableOptions<T>) {
    this.#options = options
  }

  /** The value, at most `freshMs` old. If the source cannot be read, an older value is used. */
  async current(): Promise<T> {
    const { clock, freshMs, pauseMs, paused } = this.#options
    const now = clock.monotonic()
    const value = this.#value
    if (value && now - value.readAt < freshMs) return value.content
    if (now - this.#failedAt < pauseMs) {
      if (value) return value.content
      throw paused()
    }
    try {
      return await this.#read()
    } catch (error) {
      this.#failedAt = clock.monotonic()
      if (this.#value) return this.#value.content
      throw error
    }
  }

  /** A newly read value; undefined if it was read shortly before. */
  async renewed(): Promise<T | undefined> {
    const { clock, pauseMs } = this.#options
    const triedAt = Math.max(this.#value?.readAt ?? Number.NEGATIVE_INFINITY, this.#failedAt)
    if (clock.monotonic() - triedAt < pauseMs) return undefined
    return this.#read().catch(() => {
      this.#failedAt = clock.monotonic()
      return undefined
    })
  }

  /** All waiting callers share one read. */
  #read(): Promise<T> {
    this.#reading ??= this.#load().finally(() => {
      this.#reading = undefined
    })
    return this.#reading
  }

  async #load(): Promise<T> {
    const { read, clock } = this.#options
    const content = await read()
    this.#value = { content, readAt: clock.monotonic() }
    return content
  }
}

const MAX_BYTES = 262_144
const KEYS = { what: 'The key source', accept: 'application/json' }
/** How long keys are used before they are read again. */
const FRESH_MS = 15 * 60_000
/** After a failure, and for a key that is not there, the source is left alone that long. */
const PAUSE_MS = 30_000

const KeySet = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })).max(100) })

interface KeySourceOptions {
  /** `https:`, `http:` or `file:`. */
  readonly url: URL
  readonly clock: Clock
  readonly reach: PolicyReach
}

/** A set of public keys (RFC 7517), read when it is needed and kept for a while. */
export class KeySource extends Renewable<JWTVerifyGetKey> {
  constructor({ clock, ...place }: KeySourceOptions) {
    super({
      read: () => readKeys(place),
      freshMs: FRESH_MS,
      pauseMs: PAUSE_MS,
      paused: () =>
        new OutboundError(
          'ERR_NGROK_3422',
          'The keys could not be read. They are read again soon.',
        ),
      clock,
    })
  }
}

async function readKeys({ url, reach }: Omit<KeySourceOptions, 'clock'>): Promise<JWTVerifyGetKey> {
  const bytes =
    url.protocol === 'file:' ? await readKeyFile(url, reach) : await download(url, reach, KEYS)
  try {
    const keys = KeySet.parse(JSON.parse(bytes.toString()))
    return createLocalJWKSet(keys as JSONWebKeySet)
  } catch {
    throw new OutboundError('ERR_NGROK_3422', 'The key source is not a JSON Web Key Set.')
  }
}

/**
 * Reads a plain file; a pipe or a device would never end. The author of a policy is not the owner of
 * the gateway: only files that the gateway allows are opened, and all failures look alike.
 */
async function readKeyFile(url: URL, reach: PolicyReach): Promise<Buffer> {
  const unreadable = new OutboundError('ERR_NGROK_3422', 'The key file cannot be read.')
  const path = filePath(url.href)
  if (path === undefined || !reach.mayRead?.(path)) throw unreadable
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK
  const file = await open(path, flags).catch(() => {
    throw unreadable
  })
  try {
    const stat = await file.stat()
    if (!stat.isFile()) throw unreadable
    // Files in /proc report size 0, and may have no end.
    const bytes = await buffer(file.createReadStream({ end: MAX_BYTES, autoClose: false }))
    if (bytes.length > MAX_BYTES) throw unreadable
    return bytes
  } finally {
    await file.close()
  }
}
