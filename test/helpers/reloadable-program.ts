import { readFileSync } from 'node:fs'
import { eventually } from './eventually.ts'
import { Program, type ProgramOptions } from './program.ts'
import { openServiceManager } from './service-manager-socket.ts'

/** A program with what systemd is to it: somebody to be told, who follows it to its next process. */
export class ReloadableProgram {
  readonly program: Program
  readonly #manager: ReturnType<typeof openServiceManager>
  #pid: number
  /** After a reload it is nobody's child. */
  readonly #onExit = () => this.kill()

  /** `notify` is a path for the socket of the service manager. */
  constructor(notify: string, { env, ...options }: ProgramOptions) {
    this.#manager = openServiceManager(notify)
    this.program = new Program({ ...options, env: { ...env, NOTIFY_SOCKET: notify } })
    this.#pid = this.program.pid
    process.once('exit', this.#onExit)
  }

  /** The process that serves. */
  get pid(): number {
    return this.#pid
  }

  /** What the service manager was told. */
  get told(): readonly string[] {
    return this.#manager.told
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.#pid, signal)
  }

  /** Resolves with the pid of the process before when another one serves. */
  async replaced(): Promise<number> {
    const before = this.#pid
    await eventually(() => {
      const line = this.told.filter((text) => text.startsWith('MAINPID=')).at(-1)
      const pid = Number(line?.replace('MAINPID=', '') ?? before)
      if (pid === before) throw new Error(`no other process: ${this.program.stderr}`)
      this.#pid = pid
    })
    return before
  }

  /** Resolves when another process serves and the one before has ended. */
  async reload(): Promise<void> {
    this.signal('SIGHUP')
    const before = await this.replaced()
    await ended(before)
  }

  kill(): void {
    if (!hasEnded(this.#pid)) process.kill(this.#pid, 'SIGKILL')
  }

  async stop(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    process.off('exit', this.#onExit)
    if (!hasEnded(this.#pid)) this.signal(signal)
    await ended(this.#pid)
    this.#manager.close()
  }
}

export async function ended(pid: number): Promise<void> {
  await eventually(() => {
    if (!hasEnded(pid)) throw new Error(`process ${pid} has not ended`)
  })
}

/** A zombie that nobody has asked for counts as ended. */
export function hasEnded(pid: number): boolean {
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/\(.*\)/s, ''))
  } catch {
    return true
  }
}
