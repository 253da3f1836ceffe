import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Device } from './wire-agent.ts'

/** What the crowd is told to do; the devices are made by the gateway's own stores. */
export type CrowdOrder =
  | { readonly kind: 'time-connections' | 'connect'; readonly devices: readonly Device[] }
  | { readonly kind: 'await-all' }

export interface CrowdAnswer {
  readonly error?: string
  readonly handshakeMs?: number[]
  readonly authMs?: number[]
  readonly connectedMs?: number
  /** When each device came online, in milliseconds since the epoch. */
  readonly onlineAt?: number[]
}

/** The process with the devices. */
export class CrowdProcess {
  readonly #child: ChildProcess

  constructor(agentListen: string, caPath: string) {
    const script = join(import.meta.dirname, 'crowd.ts')
    this.#child = spawn(process.execPath, ['--import', 'tsx', script, agentListen, caPath], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
  }

  async obey(order: CrowdOrder): Promise<CrowdAnswer> {
    const answered = once(this.#child, 'message')
    const ended = once(this.#child, 'exit').then(([code]) => {
      throw new Error(`the process with the devices ended with ${code}`)
    })
    ended.catch(() => {})
    this.#child.send(order)
    const [answer] = (await Promise.race([answered, ended])) as [CrowdAnswer]
    if (answer.error !== undefined) throw new Error(answer.error)
    return answer
  }

  end(): void {
    this.#child.kill()
  }
}
