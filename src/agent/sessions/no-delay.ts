import { spawn } from 'node:child_process'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { type Clock, systemClock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'

const ESTABLISHED = '01'
/** First descriptor for the child. Descriptors up to 2 would become blocking, for the SDK too. */
const FIRST_FD = 3
/** Time limit for the child, which is then killed. */
const CHILD_MS = 10_000
/** With a slower TCP handshake, there is time to start the child before the TLS handshake ends. */
const EARLY_MS = 100
/**
 * On a faster link, the child starts this long after the connect, or up to twice as long, at random. Its start
 * costs more than a TLS handshake and some binds, and devices on one machine would start theirs together.
 */
const CALM_MS = 1_000
/**
 * The child checks the remote port, because a descriptor number may belong to another socket by now. It
 * neither reads nor shuts down. Its exit closes only its own descriptors.
 */
const CHILD = `
const { Socket } = require('node:net')
const [port, count] = process.argv.slice(1).map(Number)
for (let fd = ${FIRST_FD}; fd < ${FIRST_FD} + count; fd += 1) {
  try {
    const socket = new Socket({ fd, allowHalfOpen: true, readable: false, writable: false, manualStart: true })
    if (socket.remotePort === port) socket.setNoDelay(true)
  } catch {}
}
process.exit(0)
`

/**
 * Returns the descriptors of this process for connections to a port of any machine, by socket. Linux only.
 */
export async function connectionsTo(port: number): Promise<ReadonlyMap<string, number>> {
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((name) => readFile(`/proc/self/net/${name}`, 'latin1').catch(() => '')),
  )
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const inodes = new Set<string>()
  for (const line of tables.join('\n').split('\n')) {
    const [, , remote, state, , , , , , inode] = line.trim().split(/\s+/)
    if (state === ESTABLISHED && remote?.endsWith(suffix) && inode) inodes.add(inode)
  }
  const found = new Map<string, number>()
  if (inodes.size === 0) return found
  for (const fd of await readdir('/proc/self/fd')) {
    const target = await readlink(`/proc/self/fd/${fd}`).catch(() => '')
    const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1]
    if (inode !== undefined && inodes.has(inode)) found.set(inode, Number(fd))
  }
  return found
}

/** Duration of the preflight: a TCP and a TLS handshake, or less. */
interface LinkSpeed {
  readonly preflightMs?: number | undefined
}

/**
 * Disables Nagle's algorithm on the sockets of the SDK, which has no option for it. Otherwise each small
 * answer waits for a round trip.
 *
 * A child process inherits the descriptors and sets the option, which belongs to the socket and not to the
 * descriptor. So this process never has a second owner of a descriptor.
 */
export class NoDelay {
  readonly #port: number
  readonly #log: Logger
  readonly #clock: Clock
  /** Sockets with the option set. */
  #done: ReadonlySet<string> = new Set()
  #last: Promise<void> = Promise.resolve()
  /** Starts after the current run. */
  #next: Promise<void> | undefined

  /** `port`: port of the service. */
  constructor(port: number, log: Logger, clock: Clock = systemClock) {
    this.#port = port
    this.#log = log
    this.#clock = clock
  }

  /**
   * Sets the option during the SDK's TLS handshake on a slow link. Otherwise the authentication waits for a
   * round trip. Other connections wait too, because the SDK makes one connect at a time.
   */
  async during({ preflightMs = 0 }: LinkSpeed, signal: AbortSignal): Promise<void> {
    const handshakeMs = preflightMs / 2
    if (handshakeMs < EARLY_MS) return
    await this.#clock.sleep(1.5 * handshakeMs, signal).catch(() => {})
    if (!signal.aborted) await this.apply()
  }

  /** Sets the option after a connect. On a fast link, the names of the device come back first. */
  async after({ preflightMs = 0 }: LinkSpeed): Promise<void> {
    const isSlow = preflightMs / 2 >= EARLY_MS
    if (!isSlow) await this.#clock.sleep(CALM_MS * (1 + Math.random()))
    await this.apply()
  }

  /**
   * Sets the option on new connections. Call it after a session has connected. Resolves when done or
   * impossible, never throws. Sessions that connect in close succession share a child process, because each
   * child costs as much as many binds.
   */
  apply(): Promise<void> {
    this.#next ??= this.#last.then(() => {
      this.#next = undefined
      return this.#apply().catch((err) => this.#log.debug({ err }, 'TCP_NODELAY not set'))
    })
    this.#last = this.#next
    return this.#next
  }

  async #apply(): Promise<void> {
    if (process.platform !== 'linux') return
    const found = await connectionsTo(this.#port)
    const fresh = [...found].filter(([inode]) => !this.#done.has(inode))
    this.#done = new Set(found.keys())
    if (fresh.length === 0) return
    const fds = fresh.map(([, fd]) => fd)
    const args = ['--input-type=commonjs', '-e', CHILD, String(this.#port), String(fds.length)]
    const child = spawn(process.execPath, args, {
      stdio: ['ignore', 'ignore', 'ignore', ...fds],
      env: {},
      timeout: CHILD_MS,
      killSignal: 'SIGKILL',
    })
    await new Promise<void>((resolve, reject) => {
      child.once('exit', () => resolve())
      child.once('error', reject)
    })
  }
}
