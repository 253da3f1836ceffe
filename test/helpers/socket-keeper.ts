import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { MAIN } from './program.ts'

/**
 * Starts the program each time a line comes, with the sockets from descriptor 3 on, as systemd does:
 * LISTEN_PID is the process that the program becomes. A shell, because it accepts no connections
 * itself: whoever connects while no program runs waits in the queue of the kernel.
 */
const SCRIPT = `
while IFS= read -r line; do
  sh -c 'exec env LISTEN_PID=$$ "$@"' sh "$@" </dev/null &
  echo "pid $!"
  wait $!
  echo "ended $?"
done
`
/** As in the unit. */
const BACKLOG = 4_096
const READY_WITHIN_MS = 60_000

export interface KeptProgram {
  readonly pid: number
  /** The line that it printed when it was ready, parsed. */
  readonly ready: unknown
}

/** What systemd is to a service that it activates by sockets. */
export class SocketKeeper {
  readonly addresses: readonly string[]
  readonly #shell: ChildProcess
  readonly #lines: AsyncIterator<string>
  readonly #close: () => void
  stderr = ''

  private constructor(
    addresses: readonly string[],
    shell: ChildProcess,
    lines: AsyncIterator<string>,
    close: () => void,
  ) {
    this.addresses = addresses
    this.#shell = shell
    this.#lines = lines
    this.#close = close
    shell.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text
    })
  }

  /** `envOf` gets where the sockets listen, in the order of `hosts`. */
  static async open(
    args: readonly string[],
    hosts: readonly string[],
    envOf: (addresses: readonly string[]) => Readonly<Record<string, string>>,
    cwd?: string,
    main = MAIN,
  ): Promise<SocketKeeper> {
    const servers = hosts.map((host) => createServer().listen({ port: 0, host, backlog: BACKLOG }))
    await Promise.all(servers.map((server) => once(server, 'listening')))
    const addresses = servers.map((server) => {
      const { address, port, family } = server.address() as AddressInfo
      return family === 'IPv6' ? `[${address}]:${port}` : `${address}:${port}`
    })
    const fds = servers.map(
      (server) => (server as unknown as { _handle: { fd: number } })._handle.fd,
    )
    const shell = spawn('sh', ['-c', SCRIPT, 'sh', process.execPath, main, ...args], {
      stdio: ['pipe', 'pipe', 'pipe', ...fds],
      ...(cwd === undefined ? {} : { cwd }),
      env: {
        PATH: process.env.PATH ?? '',
        HOME: process.env.HOME ?? '',
        LISTEN_FDS: String(fds.length),
        ...envOf(addresses),
      },
    })
    for (const server of servers) server.close()
    if (!shell.stdout) throw new Error('the shell has no stdout')
    const reader = createInterface({ input: shell.stdout })
    const onExit = () => shell.kill('SIGKILL')
    process.once('exit', onExit)
    return new SocketKeeper(addresses, shell, reader[Symbol.asyncIterator](), () => {
      process.off('exit', onExit)
      reader.close()
    })
  }

  async start(): Promise<KeptProgram> {
    this.#shell.stdin?.write('\n')
    const pid = Number((await this.#line()).replace('pid ', ''))
    const line = await this.#line()
    if (line.startsWith('ended')) throw new Error(`${line} before it was ready: ${this.stderr}`)
    return { pid, ready: JSON.parse(line) }
  }

  /** Resolves with the exit code of the program that was started last. */
  async ended(): Promise<number> {
    return Number((await this.#line()).replace('ended ', ''))
  }

  /** The sockets go with the shell; the program has to have ended. */
  async stop(): Promise<void> {
    const closed = once(this.#shell, 'close')
    this.#shell.stdin?.end()
    await closed
    this.#close()
  }

  async #line(): Promise<string> {
    const timer = AbortSignal.timeout(READY_WITHIN_MS)
    const late = once(timer, 'abort').then((): never => {
      throw new Error(`nothing was said: ${this.stderr}`)
    })
    const { value } = await Promise.race([this.#lines.next(), late])
    return value
  }
}
