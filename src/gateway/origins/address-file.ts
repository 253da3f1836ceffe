import { readFile, stat } from 'node:fs/promises'
import { isIP } from 'node:net'
import { Reader, type Response } from 'maxmind'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'

/** A replaced file is in use after this time at the latest. */
const POLL_MS = 10_000
/**
 * Maximum size of a file, because all of it is in memory. The largest known table has a quarter of that size.
 */
const MAX_BYTES = 1_073_741_824
const FORMAT_VERSION = 2
/** Size of the separator between tree and data. */
const SEPARATOR_BYTES = 16
/** Looked up to check that a file is valid. */
const SAMPLES = ['0.0.0.0', '1.1.1.1', '203.0.113.1', '255.255.255.255', '::1', '2001:db8::1']

export interface AddressFileOptions {
  /** Name of the setting, for messages: `GATEWAY_GEO_DB`. */
  readonly setting: string
  readonly path: string
  /** Accepted types of tables, as in their metadata. */
  readonly types: RegExp
  readonly clock: Clock
  readonly log: Logger
}

/**
 * A table of addresses in MaxMind's format, in memory, reloaded when its file changes. An unreadable file is
 * logged once; the previous data stays in use.
 */
export class AddressFile<T extends Response> {
  readonly #options: AddressFileOptions
  readonly #stopping = new AbortController()
  #reader: Reader<T> | undefined
  /** Identifies the file of the last attempt to read. */
  #mark: string | undefined
  #isBroken = false

  constructor(options: AddressFileOptions) {
    this.#options = options
  }

  /** Reads the file, and reloads it when it changes. Never throws. */
  async start(): Promise<void> {
    await this.refresh()
    // Its sleep rejects when it is stopped.
    this.#follow().catch(() => {})
  }

  stop(): void {
    this.#stopping.abort()
  }

  /** Data of an address. Null: no data. Undefined: no table. */
  get(ip: string): T | null | undefined {
    const reader = this.#reader
    const [address = ''] = ip.split('%', 1)
    const version = isIP(address)
    // An IPv4 table would confuse the bits of an IPv6 address with another address.
    if (reader && (version === 0 || version > reader.metadata.ipVersion)) return null
    try {
      return reader?.get(address)
    } catch (err) {
      if (!this.#isBroken) this.#warn(err, 'the file is damaged')
      this.#isBroken = true
      return undefined
    }
  }

  /** Reads the file if it has changed since the last read. */
  async refresh(): Promise<void> {
    const { path, setting, log } = this.#options
    const mark = await markOf(path)
    if (mark === this.#mark) return
    this.#mark = mark
    try {
      this.#reader = await this.#read()
      this.#isBroken = false
      const { databaseType, buildEpoch } = this.#reader.metadata
      log.info({ path, databaseType, buildEpoch }, `${setting} loaded`)
    } catch (err) {
      this.#warn(err, reasonOf(err))
    }
  }

  async #follow(): Promise<never> {
    for (;;) {
      await this.#options.clock.sleep(POLL_MS, this.#stopping.signal)
      await this.refresh()
    }
  }

  async #read(): Promise<Reader<T>> {
    const { path, types } = this.#options
    const { size } = await stat(path)
    if (size > MAX_BYTES) throw new Error('the file is larger than 1 GiB')
    const file = await readFile(path)
    const reader = new Reader<T>(file)
    const { binaryFormatMajorVersion, databaseType, searchTreeSize } = reader.metadata
    if (binaryFormatMajorVersion !== FORMAT_VERSION) throw new Error('the format version is not 2')
    if (!types.test(databaseType))
      throw new Error(`the database has the wrong type, ${databaseType}`)
    if (searchTreeSize + SEPARATOR_BYTES > file.length) throw new Error('the file is incomplete')
    for (const address of SAMPLES) {
      if (isIP(address) <= reader.metadata.ipVersion) reader.get(address)
    }
    return reader
  }

  #warn(err: unknown, reason: string): void {
    const { path, setting, log } = this.#options
    const meaning = this.#reader
      ? 'the previous data stays in use'
      : 'expressions that need it fail until the file can be read'
    log.warn({ err, path }, `${setting} cannot be used, ${reason}: ${meaning}`)
  }
}

/** Returns a text that changes with the file; `none` if there is no file. */
async function markOf(path: string): Promise<string | undefined> {
  const file = await stat(path).catch(() => undefined)
  return file ? `${file.ino} ${file.size} ${file.mtimeMs} ${file.ctimeMs}` : 'none'
}

function reasonOf(err: unknown): string {
  const { code, message } = err as NodeJS.ErrnoException
  if (code === 'ENOENT') return 'the file does not exist'
  return code === undefined ? message : code
}
