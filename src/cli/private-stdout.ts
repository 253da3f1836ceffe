import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync } from 'node:fs'
import process from 'node:process'

const RELAY = '/bin/cat'

/**
 * A stdout that native code cannot write to. The SDK prints a line on descriptor 1 when a link breaks, in the
 * middle of output that programs parse. Node can pass a descriptor to a child, but cannot duplicate it. So a
 * child passes on our output, and descriptor 1 leads nowhere. Call this before any other file is opened: the
 * next file takes the lowest free number.
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
