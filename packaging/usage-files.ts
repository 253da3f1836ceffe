import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { createProgram } from '../src/cli/program.ts'

/** What shells and man(1) read, by where a system has it. */
export async function usageFiles(): Promise<Readonly<Record<string, string>>> {
  return {
    'usr/share/man/man1/device-agent.1.gz': await printed('man'),
    'usr/share/bash-completion/completions/device-agent': await printed('completion', 'bash'),
    'usr/share/zsh/vendor-completions/_device-agent': await printed('completion', 'zsh'),
    'usr/share/fish/vendor_completions.d/device-agent.fish': await printed('completion', 'fish'),
  }
}

async function printed(...args: string[]): Promise<string> {
  const stdout = new PassThrough()
  const stop = new AbortController().signal
  const program = createProgram({ environment: {}, stdout, stderr: stdout, stop })
  await program.parseAsync(args, { from: 'user' })
  stdout.end()
  return text(stdout)
}
