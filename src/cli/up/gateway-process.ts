import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { StartError } from '../../base/app-error.ts'
import type { GatewayReady } from '../gateway.ts'

const SAID_BYTES = 4_096
/** How a command says in a sentence why it ends. */
const SENTENCE = /^device-agent: (.+)$/m

/** Those that run; whatever ends this process ends them, too. */
const running = new Set<ChildProcess>()
const endAll = () => {
  for (const child of running) child.kill('SIGTERM')
}

/** `device-agent gateway` as a child process, from its start until it has ended. */
export class GatewayProcess {
  readonly ended: Promise<string>
  readonly #child: ChildProcess
  #said = ''

  private constructor(child: ChildProcess) {
    this.#child = child
    if (running.size === 0) process.once('exit', endAll)
    running.add(child)
    // What it says goes on to ours; the end of it tells why it did not start.
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#said = (this.#said + text).slice(-SAID_BYTES)
    })
    this.ended = once(child, 'exit').then(([code, signal]) => {
      running.delete(child)
      if (running.size === 0) process.off('exit', endAll)
      return String(signal ?? `code ${code}`)
    })
  }

  /** In a group of its own: Ctrl-C is for this process, which ends it in its turn. */
  static start(environment: Readonly<Record<string, string | undefined>>): GatewayProcess {
    const main = process.argv[1] ?? ''
    const args = [...process.execArgv, main, 'gateway', '--json']
    const child = spawn(process.execPath, args, {
      env: { ...environment },
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    return new GatewayProcess(child)
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  /** Hands on what it says from now on. */
  passOn(stderr: NodeJS.WritableStream): void {
    this.#child.stderr?.on('data', (text: string) => stderr.write(text))
  }

  /** Where it listens. Throws a StartError with its own words when it ends instead. */
  async ready(): Promise<GatewayReady> {
    const { stdout } = this.#child
    if (!stdout) throw new StartError('A gateway process has no output.')
    const line = once(createInterface({ input: stdout }), 'line')
    const text = await Promise.race([
      line.then(([first]) => String(first)),
      this.ended.then(async (how) => {
        const [, sentence = `A gateway process ended with ${how}.`] =
          SENTENCE.exec(this.#said) ?? []
        throw new StartError(sentence)
      }),
    ])
    return JSON.parse(text) as GatewayReady
  }

  /** Resolves when it has ended. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM')
    await this.ended
  }
}
