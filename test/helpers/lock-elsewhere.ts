import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import process from 'node:process'
import { onTestFinished } from 'vitest'

const HOLDER = join(import.meta.dirname, 'lock-holder.ts')

/**
 * Another process that holds the agent's lock on a folder until it is killed, or until the end of the
 * running test; undefined when it was refused. It has collected its garbage, and with `again` it was
 * refused in a second try.
 */
export async function lockElsewhere(
  folder: string,
  ...again: 'again'[]
): Promise<ChildProcess | undefined> {
  const child = spawn(
    process.execPath,
    ['--expose-gc', '--import', 'tsx', HOLDER, folder, ...again],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  onTestFinished(() => void child.kill('SIGKILL'))
  const code = await Promise.race([
    once(child.stdout, 'data').then(() => 0),
    once(child, 'exit').then(([it]) => it),
  ])
  if (code > 1) throw new Error(`the holder of the lock ended with ${code}`)
  return code === 0 ? child : undefined
}
