import { readFileSync } from 'node:fs'

/** A zombie that nobody has asked for counts as ended. */
export function hasEnded(pid: number): boolean {
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/\(.*\)/s, ''))
  } catch {
    return true
  }
}
