import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'
import { listeningAddresses } from '../../base/listen-address.ts'

/** A process that listens at a port. */
export interface PortOwner {
  readonly pid: number
  readonly command: readonly string[]
}

/** Names the program that listens at the port, as far as this user may see it. */
export function portUser(port: number): string {
  return userText(ownersOf(port)[0])
}

export const userText = (owner: PortOwner | undefined) =>
  owner ? `${nameOf(owner)} (process ${owner.pid})` : 'another program'

/** Processes that listen at the port, as far as this user may see them. */
export function ownersOf(port: number): PortOwner[] {
  // Only Linux has it.
  if (!existsSync('/proc')) return []
  const inodes = new Set(
    [...listeningAddresses()]
      .filter(([, address]) => address.endsWith(`:${port}`))
      .map(([inode]) => `socket:[${inode}]`),
  )
  return readdirSync('/proc').flatMap((entry): PortOwner[] => {
    if (!/^\d+$/.test(entry) || !holds(entry, inodes)) return []
    return [{ pid: Number(entry), command: commandOf(entry) }]
  })
}

function holds(pid: string, inodes: ReadonlySet<string>): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => {
      try {
        return inodes.has(readlinkSync(`/proc/${pid}/fd/${fd}`))
      } catch {
        return false
      }
    })
  } catch {
    // Ended meanwhile, or of another user.
    return false
  }
}

function commandOf(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1)
  } catch {
    return []
  }
}

export const nameOf = ({ command }: PortOwner) =>
  basename(command[0]?.split(' ')[0] ?? 'another program')
