import {
  closeSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { makeFolder, syncFolder } from '../../base/file.ts'
import { Secret } from '../../base/secret.ts'
import { readIfThere } from './env-file.ts'

/** Default file name of a list. */
export const DEVICE_LIST = 'fleet-devices.jsonl'

/** A device with a known API token. */
export interface ListedDevice {
  readonly name: string
  /** AGENT_DOMAIN, where its API is. */
  readonly agentDomain: string
  readonly tags: readonly string[]
  readonly apiToken: Secret
}

/** A device before its authtoken is issued. */
export interface PendingDevice extends ListedDevice {
  /** Ids of the earlier authtokens. A further authtoken that is in no file was lost by an interruption. */
  readonly before: readonly string[]
  /** The earlier authtokens end when the files contain the new one. */
  readonly isRotated: boolean
}

const Line = z.union([
  z.object({
    name: z.string(),
    agent_domain: z.string(),
    tags: z.array(z.string()),
    api_token: z.string(),
    pending: z.literal(true),
    before: z.array(z.string()),
    rotated: z.boolean().default(false),
  }),
  z.object({
    name: z.string(),
    agent_domain: z.string(),
    tags: z.array(z.string()),
    api_token: z.string(),
  }),
  z.object({ name: z.string(), retired: z.literal(true) }),
])

/**
 * The devices made by `provision`, with their API tokens, in a file with mode 0600. Each line is a JSON
 * object; the last line of a name counts. `put` resolves when the line is on disk. An incomplete line after a
 * power cut is not an entry; callers tell the user. A pending device does not count yet, and does not replace an
 * earlier entry.
 */
export class DeviceList {
  readonly path: string
  /** The last line, if it has no end, as after a power cut or in a cut copy. The next change removes it. */
  readonly incomplete: string | undefined
  readonly #devices = new Map<string, ListedDevice>()
  readonly #pending = new Map<string, PendingDevice>()
  /** To be added, and when they are. */
  readonly #lines: string[] = []
  #written: Promise<void> | undefined

  private constructor(path: string, incomplete: string | undefined) {
    this.path = path
    this.incomplete = incomplete
  }

  /** A missing file is an empty list. Throws a StartError that names the bad line. */
  static read(path: string): DeviceList {
    const lines = (readIfThere(path) ?? '').split('\n')
    // Without its newline it was never acknowledged.
    const rest = lines.pop() ?? ''
    const incomplete = `${path}:${lines.length + 1}: the line is incomplete, so its device is not in the list.`
    const list = new DeviceList(path, isStruck(rest) ? undefined : incomplete)
    for (const [at, line] of lines.entries()) {
      if (isStruck(line)) continue
      const entry = Line.safeParse(tryJson(line)).data
      if (!entry)
        throw new StartError(
          `${path}:${at + 1}: invalid line, not written by device-agent provision.`,
        )
      if ('retired' in entry) list.#strike(entry.name)
      else if ('pending' in entry) {
        const { before, rotated: isRotated } = entry
        list.#pending.set(entry.name, { ...toDevice(entry), before, isRotated })
      } else list.#settle(toDevice(entry))
    }
    return list
  }

  /** In the order in which they got the tokens that they have. */
  get all(): ListedDevice[] {
    return [...this.#devices.values()]
  }

  get(name: string): ListedDevice | undefined {
    return this.#devices.get(name)
  }

  /** Undefined where no run was stopped while it issued an authtoken for it. */
  pendingOf(name: string): PendingDevice | undefined {
    return this.#pending.get(name)
  }

  /** Before its authtoken is issued; `put` follows when its files have the token. */
  async addPending(device: PendingDevice): Promise<void> {
    const { before, isRotated: rotated } = device
    await this.#append({ ...toLine(device), pending: true, before, rotated })
    this.#pending.set(device.name, device)
  }

  async put(device: ListedDevice): Promise<void> {
    await this.#append(toLine(device))
    const tokens = [this.#devices.get(device.name), this.#pending.get(device.name)]
    const isNew = tokens.some((it) => it && it.apiToken.reveal() !== device.apiToken.reveal())
    if (isNew) {
      this.#blank(device.name, device.apiToken)
      this.#devices.delete(device.name)
    }
    this.#settle(device)
  }

  async retire(name: string): Promise<void> {
    if (!this.#devices.has(name) && !this.#pending.has(name)) return
    await this.#append({ name, retired: true })
    this.#blank(name)
    this.#strike(name)
  }

  #settle(device: ListedDevice): void {
    this.#devices.set(device.name, device)
    this.#pending.delete(device.name)
  }

  #strike(name: string): void {
    this.#devices.delete(name)
    this.#pending.delete(name)
  }

  /** Resolves when it is on disk, with all that is added at the same time. */
  #append(line: object): Promise<void> {
    this.#lines.push(`${JSON.stringify(line)}\n`)
    this.#written ??= new Promise((resolve, reject) => {
      setImmediate(() => {
        const lines = this.#lines.splice(0)
        this.#written = undefined
        try {
          this.#appendAll(lines)
          resolve()
        } catch (error) {
          reject(error)
        }
      })
    })
    return this.#written
  }

  #appendAll(lines: readonly string[]): void {
    this.#change('a+', (file) => {
      fchmodSync(file, 0o600)
      const { size } = fstatSync(file)
      const whole = endOfLastLine(file, size)
      if (whole < size) ftruncateSync(file, whole)
      writeAll(file, Buffer.from(lines.join('')), null)
      fsyncSync(file)
      if (size === 0) syncFolder(dirname(this.path))
    })
  }

  /** Removes the lines of a device that contain a token, except the given one. */
  #blank(name: string, except?: Secret): void {
    this.#change('r+', (file) => {
      const bytes = readFileSync(file)
      const mark = JSON.stringify(name)
      for (let at = 0, end = bytes.indexOf(0x0a); end >= 0; end = bytes.indexOf(0x0a, at)) {
        const line = bytes.toString('utf8', at, end)
        const entry = line.includes(mark) ? Line.safeParse(tryJson(line)).data : undefined
        const token = entry?.name === name && 'api_token' in entry ? entry.api_token : undefined
        if (token !== undefined && token !== except?.reveal()) {
          writeAll(file, Buffer.alloc(end - at, ' '), at)
        }
        at = end + 1
      }
      fsyncSync(file)
    })
  }

  #change(flags: 'a+' | 'r+', change: (file: number) => void): void {
    try {
      makeFolder(dirname(this.path))
      const file = openSync(this.path, flags, 0o600)
      try {
        change(file)
      } finally {
        closeSync(file)
      }
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      throw new StartError(`Cannot write ${this.path} (${code}).`, { cause: error })
    }
  }
}

/** A power cut may leave one end of a line that was being overwritten. */
const isStruck = (line: string) => line === '' || line.startsWith(' ') || line.endsWith(' ')

/** The rest of the file is from a power cut. */
function endOfLastLine(file: number, size: number): number {
  const last = Buffer.alloc(1)
  if (size === 0) return 0
  readSync(file, last, 0, 1, size - 1)
  return last[0] === 0x0a ? size : readFileSync(file).lastIndexOf(0x0a) + 1
}

/** `at` null: at the end of a file that was opened for that. */
function writeAll(file: number, bytes: Buffer, at: number | null): void {
  for (let done = 0; done < bytes.length; ) {
    done += writeSync(file, bytes, done, bytes.length - done, at === null ? null : at + done)
  }
}

function toLine({ name, agentDomain: agent_domain, tags, apiToken }: ListedDevice) {
  return { name, agent_domain, tags, api_token: apiToken.reveal() }
}

function toDevice(entry: {
  name: string
  agent_domain: string
  tags: string[]
  api_token: string
}): ListedDevice {
  const { name, agent_domain: agentDomain, tags, api_token } = entry
  return { name, agentDomain, tags, apiToken: new Secret(api_token) }
}

function tryJson(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}
