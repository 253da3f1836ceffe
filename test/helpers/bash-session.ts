import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { temporaryFolder } from './temporary-folder.ts'

const PROMPT = 'what now? '
const WITHIN_MS = 60_000

/** Somebody who types into bash at a terminal of their own. */
export class BashSession {
  readonly folder: string
  readonly #child: ChildProcessWithoutNullStreams
  #screen = ''

  /** `program` is a function there that keeps what it is called with. */
  static async start(program: string, startup: string): Promise<BashSession> {
    const session = new BashSession(program, startup)
    await session.#prompted(0)
    return session
  }

  private constructor(program: string, startup: string) {
    this.folder = temporaryFolder()
    const rc = join(this.folder, '.rc')
    writeFileSync(
      rc,
      `PS1='${PROMPT}'
bind 'set enable-bracketed-paste off'
bind 'set bell-style none'
${program}() { printf '%s\\n' "$@" > '${this.folder}/.words'; }
${startup}
`,
    )
    const bash = `bash --noprofile --rcfile ${rc} -i`
    this.#child = spawn('script', ['-qec', bash, '/dev/null'], {
      cwd: this.folder,
      env: { PATH: process.env.PATH ?? '', TERM: 'dumb', LC_ALL: 'C.UTF-8' },
    })
    this.#child.stdout.on('data', (bytes: Buffer) => {
      this.#screen += bytes
    })
    onTestFinished(() => {
      this.#child.kill('SIGKILL')
    })
  }

  /** The words that the program is called with after these keys and Enter. */
  async type(keys: string): Promise<string[]> {
    const words = join(this.folder, '.words')
    writeFileSync(words, '')
    const from = this.#screen.length
    this.#child.stdin.write(`${keys}\n`)
    // A prompt is also what completion paints anew, before what was typed.
    await this.#prompted(from, () => readFileSync(words, 'utf8') !== '')
    return readFileSync(words, 'utf8').trimEnd().split('\n')
  }

  #prompted(from: number, isDone = () => true): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (why: string) => reject(new Error(`${why}:\n${this.#screen}`))
      const timer = setTimeout(() => fail('bash said nothing'), WITHIN_MS)
      const look = () => {
        if (!this.#screen.slice(from).endsWith(PROMPT) || !isDone()) return
        clearTimeout(timer)
        this.#child.stdout.off('data', look)
        resolve()
      }
      this.#child.stdout.on('data', look)
      look()
    })
  }
}
