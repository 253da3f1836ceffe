import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

export const MAIN = join(import.meta.dirname, '../../dist/main.js')
const READY_WITHIN_MS = 120_000

/** Every listener on a free port, logs quiet: what tests start from. */
export const FREE_PORTS = {
  AGENT_LISTEN: '127.0.0.1:0',
  GATEWAY_AGENT_LISTEN: '127.0.0.1:0',
  GATEWAY_HTTP_LISTEN: '127.0.0.1:0',
  GATEWAY_HTTPS_LISTEN: '127.0.0.1:0',
  GATEWAY_API_LISTEN: '127.0.0.1:0',
} as const

/** Those that run; whatever ends this process ends them, too. */
const running = new Set<ChildProcess>()
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

export interface ProgramOptions {
  readonly args: readonly string[]
  /** What is started, before the arguments; `main` on the Node of this process. */
  readonly command?: readonly [string, ...string[]] | undefined
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Of another copy of the program. */
  readonly main?: string
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** The built program as a child process, with nothing of this process's settings. */
export class Program {
  readonly child: ChildProcess
  readonly ended: Promise<Ended>
  readonly #stdout: string[] = []
  #stderr = ''

  constructor({ args, env = {}, cwd, main = MAIN, command }: ProgramOptions) {
    const [file, ...first] = command ?? [process.execPath, main]
    this.child = spawn(file, [...first, ...args], {
      env: { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', ...FREE_PORTS, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(cwd === undefined ? {} : { cwd }),
    })
    running.add(this.child)
    this.child.once('exit', () => running.delete(this.child))
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr += text
    })
    this.ended = once(this.child, 'close').then(([code, signal]) => ({
      code,
      signal,
      stdout: this.#stdout.join('\n'),
      stderr: this.#stderr,
    }))
  }

  get pid(): number {
    return this.child.pid ?? -1
  }

  get stderr(): string {
    return this.#stderr
  }

  /** The first line on stdout, parsed; fails with what the program said when it ends instead. */
  async ready<T>(): Promise<T> {
    const { stdout } = this.child
    if (!stdout) throw new Error('the program has no stdout')
    const lines = createInterface({ input: stdout })
    lines.on('line', (line) => this.#stdout.push(line))
    const signal = AbortSignal.timeout(READY_WITHIN_MS)
    const line = once(lines, 'line', { signal }).then(([text]) => JSON.parse(text) as T)
    const ended = this.ended.then(({ code }): never => {
      throw new Error(`ended with ${code} before it was ready: ${this.#stderr}`)
    })
    line.catch(() => {})
    ended.catch(() => {})
    return Promise.race([line, ended])
  }

  /** Sends a signal and waits for the end. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<Ended> {
    this.child.kill(signal)
    return this.ended
  }
}

/** Runs the program to its end. */
export async function runProgram(options: ProgramOptions): Promise<Ended> {
  const program = new Program(options)
  const collected: string[] = []
  program.child.stdout?.setEncoding('utf8').on('data', (text: string) => collected.push(text))
  const ended = await program.ended
  return { ...ended, stdout: collected.join('') }
}
