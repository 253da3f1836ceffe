import process from 'node:process'
import type { CommandContext } from '../command-context.ts'

/**
 * Does work that must not end half-way when its terminal closes: an ssh session may lead through the tunnel that
 * the work interrupts.
 */
export async function despiteHangup<T>(
  { stdout, stderr }: Pick<CommandContext, 'stdout' | 'stderr'>,
  work: () => Promise<T>,
): Promise<T> {
  const ignore = () => {}
  // These stay: output after the work fails, too.
  for (const output of [stdout, stderr]) output.on('error', ignore)
  process.on('SIGHUP', ignore)
  try {
    return await work()
  } finally {
    process.off('SIGHUP', ignore)
  }
}
