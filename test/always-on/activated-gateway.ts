import { join } from 'node:path'
import { hasEnded } from '../helpers/has-ended.ts'
import { openServiceManager } from '../helpers/service-manager-socket.ts'
import type { GatewayReady } from '../helpers/site.ts'
import { SocketKeeper } from '../helpers/socket-keeper.ts'
import { until } from './until.ts'

/** A gateway with what systemd is to it: sockets that outlive it, and somebody to be told. */
export class ActivatedGateway {
  readonly ready: GatewayReady
  readonly #keeper: SocketKeeper
  readonly #manager: ReturnType<typeof openServiceManager>
  #pid: number
  /** The shell of the keeper waits for the process that it started itself. */
  #isOfKeeper = true

  /** After a reload it is nobody's child. */
  readonly #onExit = () => {
    if (!hasEnded(this.#pid)) process.kill(this.#pid, 'SIGKILL')
  }

  private constructor(
    keeper: SocketKeeper,
    manager: ReturnType<typeof openServiceManager>,
    { pid, ready }: { readonly pid: number; readonly ready: unknown },
  ) {
    this.#keeper = keeper
    this.#manager = manager
    this.#pid = pid
    this.ready = ready as GatewayReady
    process.once('exit', this.#onExit)
  }

  /** `hosts` are those of the listeners for agents, HTTP, HTTPS and the management API. */
  static async start(
    folder: string,
    env: Readonly<Record<string, string>> = {},
    hosts: readonly string[] = Array<string>(4).fill('127.0.0.1'),
    main?: string,
  ): Promise<ActivatedGateway> {
    const notify = join(folder, 'notify')
    const manager = openServiceManager(notify)
    const keeper = await SocketKeeper.open(
      ['gateway', '--json'],
      hosts,
      ([agent = '', http = '', https = '', api = '']) => ({
        GATEWAY_AGENT_LISTEN: agent,
        GATEWAY_HTTP_LISTEN: http,
        GATEWAY_HTTPS_LISTEN: https,
        GATEWAY_API_LISTEN: api,
        GATEWAY_DATA_DIR: join(folder, 'gateway'),
        LOG_LEVEL: 'warn',
        NOTIFY_SOCKET: notify,
        ...env,
      }),
      undefined,
      main,
    )
    return new ActivatedGateway(keeper, manager, await keeper.start())
  }

  /** What it wrote to its log. */
  get log(): string {
    return this.#keeper.stderr
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.#pid, signal)
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const pid = this.#pid
    process.kill(pid, signal)
    if (this.#isOfKeeper) await this.#keeper.ended()
    else await until(`the end of process ${pid}`, async () => hasEnded(pid))
  }

  /** After `end()`. */
  async startAgain(): Promise<void> {
    this.#pid = (await this.#keeper.start()).pid
    this.#isOfKeeper = true
  }

  /** Resolves when the new process serves and the old one has ended. */
  async reload(): Promise<void> {
    const { told } = this.#manager
    const before = told.length
    const old = this.#pid
    process.kill(old, 'SIGHUP')
    await until('another process of the gateway', async () => {
      const line = told.slice(before).find((text) => text.startsWith('MAINPID='))
      this.#pid = line === undefined ? old : Number(line.replace('MAINPID=', ''))
      return line !== undefined
    })
    if (this.#isOfKeeper) await this.#keeper.ended()
    else await until(`the end of process ${old}`, async () => hasEnded(old))
    this.#isOfKeeper = false
  }

  /** The process has to have ended. */
  async stop(): Promise<void> {
    process.off('exit', this.#onExit)
    await this.#keeper.stop()
    this.#manager.close()
  }
}
