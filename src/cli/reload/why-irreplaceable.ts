import { readFileSync } from 'node:fs'
import process from 'node:process'

/** Those that a container begins with; each ends with the one process that it was given. */
const INITS: ReadonlySet<string> = new Set(['catatonit', 'docker-init', 'dumb-init', 'tini'])

/** Whose place in the system it is. */
export interface ProcessPlace {
  readonly pid: number
  readonly ppid: number
  /** Name of the first process. */
  readonly firstName: string | undefined
}

/**
 * Why no other process can take the place of this one, and what to do instead. Where systemd is told
 * of the other one, or nobody waits for this one, it can.
 */
export function whyIrreplaceable({ pid, ppid, firstName }: ProcessPlace): string | undefined {
  const isFirst = pid === 1 || (ppid === 1 && INITS.has(firstName ?? ''))
  if (!isFirst) return undefined
  return 'the container ends together with this process. Restart the container instead'
}

export function ownPlace(): ProcessPlace {
  const { pid, ppid } = process
  return { pid, ppid, firstName: nameOfFirst() }
}

function nameOfFirst(): string | undefined {
  try {
    return readFileSync('/proc/1/comm', 'utf8').trim()
  } catch {
    return undefined
  }
}
