import {
  closeSync,
  fchmodSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import * as z from 'zod'
import { StartError } from '../../base/app-error.ts'
import { makeFolder, syncFolder } from '../../base/file.ts'
import { Secret } from '../../base/secret.ts'
import { readIfThere } from './env-file.ts'

/** A device whose API somebody here may use. */
export interface ListedDevice {
  readonly name: string
  /** AGENT_DOMAIN, where its API is. */
  readonly agentDomain: string
  readonly tags: readonly string[]
  readonly apiToken: Secret
}

/** A device whose authtoken is being issued. */
export interface PendingDevice extends ListedDevice {
  /** Ids of the authtokens that it had: another one, whose token no file has, was lost on the way. */
  readonly before: readonly string[]
}

const Line = z.union([
  z.object({
    name: z.string(),
    agent_domain: z.string(),
    tags: z.array(z.string()),
    api_token: z.string(),
    pending: z.literal(true),
    before: z.array(z.string()),
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
 * The devices that `provision` has made, with the tokens of their APIs, for this user alone (0600): a
 * JSON object a line, the last one of a name counts. What is added is on disk when `put` returns; what a
 * power cut has left of a line is no line. A pending device is none yet, and one that was there before
 * stays as it was.
 */
export class DeviceList {
  readonly path: string
  readonly #devices = new Map<string, ListedDevice>()
  readonly #pending = new Map<string, PendingDevice>()

  private constructor(path: string) {
    this.path = path
  }

  /** One that is not there is empty. Throws a StartError that names the bad line. */
  static read(path: string): DeviceList {
    const list = new DeviceList(path)
    const lines = (readIfThere(path) ?? '').split('\n')
    // Without its newline it was never acknowledged.
    lines.pop()
    for (const [at, line] of lines.entries()) {
      const entry = Line.safeParse(tryJson(line)).data
      if (!entry) throw new StartError(`${path}:${at + 1}: this is no line that provision writes.`)
      if ('retired' in entry) list.#strike(entry.name)
      else if ('pending' in entry) {
        list.#pending.set(entry.name, { ...toDevice(entry), before: entry.before })
      } else list.#settle(toDevice(entry))
    }
    return list
  }

  /** In the order in which they were added. */
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
  begin(device: PendingDevice): void {
    this.#append({ ...toLine(device), pending: true, before: device.before })
    this.#pending.set(device.name, device)
  }

  put(device: ListedDevice): void {
    this.#append(toLine(device))
    this.#settle(device)
  }

  retire(name: string): void {
    if (!this.#devices.has(name) && !this.#pending.has(name)) return
    this.#append({ name, retired: true })
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

  #append(line: object): void {
    try {
      makeFolder(dirname(this.path))
      const file = openSync(this.path, 'a+', 0o600)
      try {
        fchmodSync(file, 0o600)
        const before = readFileSync(file)
        const whole = before.lastIndexOf(0x0a) + 1
        if (whole < before.length) ftruncateSync(file, whole)
        const bytes = Buffer.from(`${JSON.stringify(line)}\n`)
        for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at)
        fsyncSync(file)
      } finally {
        closeSync(file)
      }
      syncFolder(dirname(this.path))
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      throw new StartError(`${this.path} cannot be written (${code}).`, { cause: error })
    }
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
