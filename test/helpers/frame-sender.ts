import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

const PROCESS = join(import.meta.dirname, 'frame-sender-process.ts')

/**
 * Sends a text on connections of HTTP/2, one after the other, from a process of its own: it closes
 * while this process is still busy with the end, as a client elsewhere does.
 */
export async function sendFromElsewhere(
  port: number,
  connections: number,
  text: string,
): Promise<void> {
  const args = ['--import', 'tsx', PROCESS, `${port}`, `${connections}`, text]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error(`the sender ended with ${code}`)
}
