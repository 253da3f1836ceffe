import { readdirSync, readlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'

const CONNECTIONS = '/proc/self/net/tcp'
const FILES = '/proc/self/fd'
const LOOPBACK = '127.0.0.1'
/** In the byte order of the machine. */
const LOOPBACK_HEX = '(?:0100007F|7F000001)'

/**
 * Whether the other end of an accepted connection to 127.0.0.1 is a socket of this process, as the system
 * has it; false where that cannot be read. Only Linux tells: true elsewhere.
 */
export async function isOfThisProcess(client: Socket): Promise<boolean> {
  if (process.platform !== 'linux') return true
  const { remoteAddress, remotePort, localPort } = client
  if (remoteAddress !== LOOPBACK || remotePort === undefined || localPort === undefined)
    return false
  try {
    const inode = inodeIn(await readFile(CONNECTIONS, 'latin1'), remotePort, localPort)
    return inode !== undefined && readdirSync(FILES).some((file) => isSocket(file, inode))
  } catch {
    return false
  }
}

/** A socket that nobody has any more has the inode 0. */
function inodeIn(connections: string, from: number, to: number): string | undefined {
  const [own, other] = [from, to].map((port) => port.toString(16).toUpperCase().padStart(4, '0'))
  // sl, local and remote address, state, queues, timer, retransmits, uid, timeout, inode
  const line = `: ${LOOPBACK_HEX}:${own} ${LOOPBACK_HEX}:${other} \\S+ \\S+ \\S+ \\S+ +\\d+ +\\d+ (\\d+) `
  return new RegExp(line).exec(connections)?.[1]
}

function isSocket(file: string, inode: string): boolean {
  try {
    return readlinkSync(`${FILES}/${file}`) === `socket:[${inode}]`
  } catch {
    // Closed meanwhile.
    return false
  }
}
