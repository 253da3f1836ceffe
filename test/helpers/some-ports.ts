import { randomInt } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ListenAddress, PortRange } from '../../src/base/listen-address.ts'

/** Below the ports that systems give away by themselves. */
const FIRST = 20_000
/** Each test file takes one share; as many test files can run at once on a machine. */
const SHARES = 40
const PORTS_PER_SHARE = 300
/** The last port of a share is for a server that runs until the process ends; the others come again. */
const REUSED_PORTS = PORTS_PER_SHARE - 1

let firstOfShare: number | undefined
let taken = randomInt(REUSED_PORTS)

/**
 * Ports that no other test process on this machine uses. A port that was free a moment ago, or that
 * its owner closes for a moment, could be in use by then.
 *
 * @throws Error when all shares are in use.
 */
export function somePorts(count = 20): PortRange {
  if ((taken % REUSED_PORTS) + count > REUSED_PORTS) taken += REUSED_PORTS - (taken % REUSED_PORTS)
  const first = ownShare() + (taken % REUSED_PORTS)
  taken += count
  return { host: '127.0.0.1', first, last: first + count - 1 }
}

/** An address for a server that a test stops and starts again. */
export function lastingAddress(): ListenAddress {
  const { host, first } = somePorts(1)
  return { host, port: first }
}

/** A port for the one server of this process that runs until the process ends. */
export function portOfProcess(): number {
  return ownShare() + REUSED_PORTS
}

/** The first port of the share of this process. */
function ownShare(): number {
  firstOfShare ??= FIRST + freeShare() * PORTS_PER_SHARE
  return firstOfShare
}

/** Takes a share until this process ends, by a file with the process id. */
function freeShare(): number {
  const start = randomInt(SHARES)
  for (let i = 0; i < SHARES; i++) {
    const share = (start + i) % SHARES
    const path = join(tmpdir(), `device-agent-test-ports-${share}`)
    if (!isHeld(path) && take(path)) return share
  }
  throw new Error(`all ${SHARES} shares of test ports are in use`)
}

/** False also for the file of a process that was killed; that file is removed. */
function isHeld(path: string): boolean {
  try {
    process.kill(Number(readFileSync(path, 'utf8')), 0)
    return true
  } catch {
    rmSync(path, { force: true })
    return false
  }
}

/** @returns false when another process was faster. */
function take(path: string): boolean {
  try {
    writeFileSync(path, String(process.pid), { flag: 'wx' })
  } catch {
    return false
  }
  process.once('exit', () => rmSync(path, { force: true }))
  return true
}
