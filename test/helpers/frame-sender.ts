import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

const PROCESS = join(import.meta.dirname, 'frame-sender-process.ts')

/** What a client sends on each connection, until the other side closes it. */
export interface FrameSending {
  readonly port: number
  readonly connections: number
  /** Sent first; bytes as Latin-1. */
  readonly opening: string
  /** Sent again and again after it; empty: nothing. */
  readonly piece: string
}

/**
 * Sends from a process of its own, which goes on while this one is busy, as a client elsewhere does.
 * Resolves when the last connection has closed.
 */
export async function sendFromElsewhere(sending: FrameSending): Promise<void> {
  const args = ['--import', 'tsx', PROCESS, JSON.stringify(sending)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error(`the sender ended with ${code}`)
}
