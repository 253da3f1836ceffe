import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import { type LinkShape, PLACES, type Place, type Rig } from './rig.ts'

export const PACKET_LINK = join(import.meta.dirname, 'packet-link.py')

/** A network namespace for each place; packets between them and this one go through `packet-link.py`. */
export class LinkedNamespaces implements Rig {
  readonly kind = 'network namespaces, packets delayed between TUN devices'
  readonly #holders: readonly ChildProcess[]
  readonly #carrier: ChildProcess

  private constructor(holders: readonly ChildProcess[], carrier: ChildProcess) {
    this.#holders = holders
    this.#carrier = carrier
  }

  static async open(): Promise<LinkedNamespaces> {
    const holders = PLACES.map(() =>
      spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up && echo ready && exec cat'], {
        stdio: ['pipe', 'pipe', 'inherit'],
      }),
    )
    await Promise.all(holders.map((it) => once(it.stdout, 'data')))
    const pids = holders.map((it) => String(it.pid))
    const carrier = spawn('python3', [PACKET_LINK, ...pids], { stdio: ['pipe', 'pipe', 'inherit'] })
    const failed = once(carrier, 'exit').then((): never => {
      throw new Error('packet-link.py has ended')
    })
    failed.catch(() => {})
    await Promise.race([once(carrier.stdout, 'data'), failed])
    return new LinkedNamespaces(holders, carrier)
  }

  hostFor(place: Place): string {
    return `10.77.${PLACES.indexOf(place)}.1`
  }

  hostAt(place: Place): string {
    return `10.77.${PLACES.indexOf(place)}.2`
  }

  commandAt(place: Place, program: readonly string[]): [string, ...string[]] {
    const { pid } = this.#holders[PLACES.indexOf(place)] as ChildProcess
    return ['nsenter', `--net=/proc/${pid}/ns/net`, '--', ...program]
  }

  async across(_place: Place, listener: ListenAddress): Promise<ListenAddress> {
    return listener
  }

  shape(place: Place, { rttMs, bytesPerSecond = 0 }: LinkShape): void {
    this.#tell(place, { delay: rttMs / 2_000, rate: bytesPerSecond })
  }

  reset(place: Place): void {
    this.#tell(place, { reset: true })
  }

  stall(place: Place, isStalled: boolean): void {
    this.#tell(place, { stalled: isStalled })
  }

  async stop(): Promise<void> {
    const all = [this.#carrier, ...this.#holders]
    const ended = all.map((child) => once(child, 'exit'))
    for (const child of all) child.stdin?.end()
    await Promise.all(ended)
  }

  #tell(place: Place, what: object): void {
    this.#carrier.stdin?.write(`${JSON.stringify({ link: PLACES.indexOf(place), ...what })}\n`)
  }
}
