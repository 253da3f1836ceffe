import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync } from 'node:fs'
import process from 'node:process'

const RELAY = '/bin/cat'

/**
 * A stdout that native code cannot write to: the SDK prints a line on descriptor 1 when a link
 * breaks, among what programs read. Node can only hand a descriptor to a child, not duplicate it;
 * so a child passes on what we write, and descriptor 1 leads nowhere. Call it before anything else
 * opens a file: the next one takes the lowest free number.
 */
export function openPrivateStdout(): NodeJS.WritableStream {
  if (!existsSync(RELAY)) return process.stdout
  const relay = spawn(RELAY, { stdio: ['pipe', 'inherit', 'ignore'] })
  // It ends with us, and neither it nor a reader that went away holds us up.
  relay.on('error', () => {})
  relay.stdin.on('error', () => {})
  relay.unref()
  closeSync(1)
  openSync('/dev/null', 'w')
  return relay.stdin
}
