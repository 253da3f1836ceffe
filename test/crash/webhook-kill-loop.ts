import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Webhook } from 'standardwebhooks'
import { Program } from '../helpers/program.ts'
import { seeded } from '../helpers/seeded.ts'
import type { GatewayReady } from '../helpers/site.ts'
import { HandDevice } from './hand-device.ts'

const DEVICES = 4
const LONGEST_LIFE_MS = 1_500
/** Of requests; the next one waits for the first try after it. */
const REFUSED_SHARE = 0.02
const SETTLE_MS = 60_000

interface Told {
  readonly sequence: number
  readonly type: string
  readonly data: { readonly device?: { readonly id: string; readonly device_id: string } }
}

/** A device with an account of its own, so that it can be switched off alone. */
interface Subject {
  readonly name: string
  readonly ownerId: string
  readonly authtoken: string
}

export interface WebhookKillLoopReport {
  readonly kills: number
  readonly events: number
  /** Requests that were taken again after a kill, with the same id. */
  readonly again: number
  /** From the last sign of life of a device to the webhook that tells of it. */
  readonly silenceToldS: number
}

/**
 * Kills the gateway at random moments while devices come and go and a receiver takes webhooks. At the
 * end: every event of the log has come, in order, with no gap in the log, and each device was told to
 * have come and gone in turns.
 */
export class WebhookKillLoop {
  readonly #folder: string
  readonly #random: () => number
  readonly #taken: Told[] = []
  #again = 0
  #problem: Error | undefined
  #secret = ''
  #hooks = ''
  #gateway: Program | undefined
  #ready: GatewayReady | undefined

  private constructor(folder: string, random: () => number) {
    this.#folder = folder
    this.#random = random
  }

  static async run(options: {
    readonly folder: string
    readonly kills: number
    readonly seed: number
    readonly onKill?: (count: number) => void
  }): Promise<WebhookKillLoopReport> {
    const { folder, kills, seed, onKill } = options
    const loop = new WebhookKillLoop(folder, seeded(seed))
    const receiver = await loop.#receive()
    try {
      await loop.#start()
      const subjects = await loop.#settle()
      for (let count = 1; count <= kills; count += 1) {
        await loop.#live(subjects)
        await loop.#start()
        if (loop.#problem) throw loop.#problem
        onKill?.(count)
      }
      const silenceToldS = await loop.#dieSilently(subjects)
      const events = await loop.#compare()
      return { kills, events, again: loop.#again, silenceToldS }
    } finally {
      await loop.#gateway?.end()
      receiver.close()
      receiver.closeAllConnections()
    }
  }

  async #receive(): Promise<Server> {
    const server = createServer((request, response) => {
      let body = ''
      request.on('data', (chunk) => {
        body += chunk
      })
      request.on('end', () => {
        if (this.#random() < REFUSED_SHARE) return void response.writeHead(503).end()
        try {
          const headers = request.headers as Record<string, string>
          this.#take(new Webhook(this.#secret).verify(body, headers) as Told)
        } catch (error) {
          this.#problem ??= error as Error
        }
        response.writeHead(204).end()
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    this.#hooks = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    return server
  }

  #take(told: Told): void {
    const last = this.#taken.at(-1)?.sequence ?? told.sequence - 1
    if (told.sequence <= last) this.#again += 1
    else if (told.sequence === last + 1) this.#taken.push(told)
    else throw new Error(`event ${told.sequence} came after ${last}`)
  }

  async #start(): Promise<void> {
    this.#gateway = new Program({
      args: ['gateway', '--json'],
      cwd: this.#folder,
      env: {
        GATEWAY_DATA_DIR: join(this.#folder, 'gateway'),
        GATEWAY_OUTBOUND_ALLOW: '127.0.0.1',
        LOG_LEVEL: 'warn',
      },
    })
    this.#ready = await this.#gateway.ready<GatewayReady>()
  }

  async #settle(): Promise<Subject[]> {
    const { secret } = await this.#made('/webhook_endpoints', { url: this.#hooks })
    this.#secret = secret ?? ''
    const subjects: Subject[] = []
    for (let n = 0; n < DEVICES; n += 1) {
      const name = `device-${n}`
      const { id: ownerId } = await this.#made('/bot_users', { name })
      const { token = '' } = await this.#made('/credentials', { owner_id: ownerId })
      subjects.push({ name, ownerId, authtoken: token })
    }
    return subjects
  }

  /** Each device is let in and switched off, again and again, until the process is killed. */
  async #live(subjects: readonly Subject[]): Promise<void> {
    let isAlive = true
    const lives = subjects.map(async (subject) => {
      // One key may not ask that often.
      const { token } = await this.#made('/api_keys', { name: `${subject.name}` })
      const activate = (active: boolean) =>
        this.#call('PATCH', `/bot_users/${subject.ownerId}`, { active }, token)
      while (isAlive) {
        await activate(true)
        const device = await this.#connect(subject)
        await sleep(this.#random() * 200)
        await activate(false)
        device.leave()
      }
    })
    // Whatever a client meets at the kill is right.
    const ended = Promise.allSettled(lives)
    await sleep(this.#random() * LONGEST_LIFE_MS)
    await this.#gateway?.end('SIGKILL')
    isAlive = false
    await ended
  }

  /** A device hangs: its connection stays, and it answers nothing. */
  async #dieSilently([subject]: readonly Subject[]): Promise<number> {
    if (!subject) throw new Error('there is no device')
    await this.#call('PATCH', `/bot_users/${subject.ownerId}`, { active: true })
    // What was told of it before could be taken for what is told of it now.
    const before = await this.#log()
    await until(() => this.#taken.length >= before.length, 'what happened before to come')
    const device = await this.#connect(subject, { isSilent: true })
    const since = performance.now()
    const isOnline = () => {
      const ofIt = this.#taken.filter(({ data }) => data.device?.device_id === subject.name)
      return ofIt.at(-1)?.type === 'device.online'
    }
    await until(isOnline, 'the device to come online')
    await until(() => !isOnline(), 'the silence to be told')
    device.leave()
    return Math.round((performance.now() - since) / 100) / 10
  }

  async #compare(): Promise<number> {
    // Those that were online at the last kill are waited for.
    await sleep(31_000)
    const log = await this.#log()
    await until(() => this.#taken.length >= log.length, 'all events to come')
    if (this.#problem) throw this.#problem
    const sequences = log.map(({ sequence }) => sequence)
    if (sequences.some((sequence, at) => sequence !== at + 1)) throw new Error('the log has gaps')
    if (
      this.#taken.some(({ sequence, type }, at) => sequence !== at + 1 || type !== log[at]?.type)
    ) {
      throw new Error('what was taken is not what happened')
    }
    const last = new Map<string, string>()
    for (const { sequence, type, data } of this.#taken) {
      const id = data.device?.id
      if (id === undefined || !/\.(online|offline)$/.test(type)) continue
      if (last.get(id) === type) throw new Error(`event ${sequence}: ${id} is ${type} twice`)
      last.set(id, type)
    }
    return log.length
  }

  /** Oldest first. */
  async #log(): Promise<{ sequence: number; type: string }[]> {
    const all: { id: string; sequence: number; type: string }[] = []
    for (;;) {
      const before = all.at(-1)?.id
      const path = before === undefined ? '/events' : `/events?before_id=${before}`
      const { token } = await this.#made('/api_keys', { name: 'reader' })
      const answer = await this.#call('GET', path, undefined, token)
      const { events } = (await answer.json()) as { events: typeof all }
      if (events.length === 0) return all.reverse()
      all.push(...events)
    }
  }

  #connect({ name, authtoken }: Subject, more: { isSilent?: boolean } = {}): Promise<HandDevice> {
    if (!this.#ready) throw new Error('there is no gateway')
    return HandDevice.connect(this.#ready, { authtoken, deviceId: name, ...more })
  }

  async #made(
    path: string,
    body: object,
  ): Promise<{ id: string; token?: string; secret?: string }> {
    const answer = await this.#call('POST', path, body)
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`)
    return (await answer.json()) as { id: string; token?: string; secret?: string }
  }

  #call(method: string, path: string, body?: object, token?: string): Promise<Response> {
    if (!this.#ready) throw new Error('there is no gateway')
    const key = token ?? readFileSync(this.#ready.api_key_file, 'utf8').trim()
    return fetch(`${this.#ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
  }
}

async function until(check: () => boolean, what: string): Promise<void> {
  const end = performance.now() + SETTLE_MS
  while (!check()) {
    if (performance.now() > end) throw new Error(`waited in vain for ${what}`)
    await sleep(20)
  }
}
