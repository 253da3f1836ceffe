import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'

export interface Answer {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** What every container of the tests gets: the limits of docs/getting-started/container.md. */
const HARDENED = [
  ...['--read-only', '--cap-drop', 'all', '--security-opt', 'no-new-privileges'],
  // The default of podman can be above what this machine allows.
  ...['--ulimit', 'nofile=4096:4096', '--ulimit', 'nproc=4096:4096'],
]

export interface ContainerOptions {
  readonly name: string
  readonly command: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly options?: readonly string[]
}

/** podman with runc, with images, containers and networks of its own in a folder. */
export class Engine {
  readonly image: string
  readonly globals: readonly string[]
  readonly #network: string

  private constructor(globals: readonly string[], image: string, network: string) {
    this.globals = globals
    this.image = image
    this.#network = network
  }

  static async load(folder: string, archive: string): Promise<Engine> {
    for (const name of ['storage', 'run', 'networks']) mkdirSync(join(folder, name))
    const globals = [
      ...['--root', join(folder, 'storage'), '--runroot', join(folder, 'run')],
      // For machines that are containers or small VMs themselves.
      ...['--storage-driver', 'vfs', '--cgroup-manager', 'cgroupfs'],
      ...['--events-backend', 'file', '--runtime', 'runc'],
      ...['--network-config-dir', join(folder, 'networks')],
    ]
    const network = `device-agent-${process.pid}`
    const loaded = await run('podman', [...globals, 'load', '--quiet', '--input', archive])
    const image = /^Loaded image(?:\(s\))?: (\S+)$/m.exec(
      expectDone('podman load', loaded).stdout,
    )?.[1]
    if (image === undefined) throw new Error(`podman load: ${loaded.stdout}`)
    const engine = new Engine(globals, image, network)
    await engine.podman('network', 'create', network)
    return engine
  }

  /** Throws when it fails. */
  async podman(...args: string[]): Promise<string> {
    return expectDone(`podman ${args.join(' ')}`, await this.ask(...args)).stdout
  }

  ask(...args: string[]): Promise<Answer> {
    return run('podman', [...this.globals, ...args])
  }

  /** Starts a container on the network of the tests, which knows it by its name. */
  async start({ name, command, env = {}, options = [] }: ContainerOptions): Promise<void> {
    const set = Object.entries(env).flatMap(([key, value]) => ['--env', `${key}=${value}`])
    const network = ['--network', this.#network, '--hostname', name]
    await this.podman(
      ...['run', '--detach', '--name', name, ...network, ...HARDENED, ...set, ...options],
      ...[this.image, ...command],
    )
  }

  /** Runs the image once, without a network, to its end. */
  once(options: readonly string[], command: readonly string[]): Promise<Answer> {
    return this.ask(
      'run',
      '--rm',
      '--network',
      'none',
      ...HARDENED,
      ...options,
      this.image,
      ...command,
    )
  }

  /** Runs `device-agent` in a container that runs. */
  agent(name: string, ...args: string[]): Promise<Answer> {
    return this.ask('exec', name, 'device-agent', ...args)
  }

  /** Runs a line of JavaScript by the Node of the image, as the user of the container. */
  node(name: string, script: string): Promise<Answer> {
    return this.ask('exec', name, '/usr/lib/device-agent/bin/node', '--eval', script)
  }

  async log(name: string): Promise<string> {
    const { stdout, stderr } = await this.ask('logs', name)
    return stdout + stderr
  }

  async address(name: string): Promise<string> {
    const format = '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'
    return (await this.podman('inspect', '--format', format, name)).trim()
  }

  async exitCode(name: string): Promise<number> {
    return Number(await this.podman('inspect', '--format', '{{.State.ExitCode}}', name))
  }

  /** Ends everything that this engine has started. */
  async end(): Promise<void> {
    await this.ask('rm', '--all', '--force', '--volumes', '--time', '0')
    await this.ask('network', 'rm', '--force', this.#network)
    await this.ask('rmi', '--all', '--force')
  }
}

export async function run(
  tool: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const child: ChildProcess = spawn(tool, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const { stdout, stderr } = child
  if (!stdout || !stderr) throw new Error(`${tool} has no output`)
  const [[code], out, err] = await Promise.all([once(child, 'close'), text(stdout), text(stderr)])
  return { code, stdout: out, stderr: err }
}

export function expectDone(what: string, answer: Answer): Answer {
  if (answer.code === 0) return answer
  throw new Error(`${what} ended with ${answer.code}: ${answer.stderr}${answer.stdout}`)
}
