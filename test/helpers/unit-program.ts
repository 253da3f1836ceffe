import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MAIN, type ProgramOptions } from './program.ts'

/**
 * The command and the environment of a systemd unit, with this Node and this program in it; without a
 * folder for what they cache they cache nothing.
 */
export function unitProgram(
  unit: 'device-agent' | 'device-gateway',
  node: string = process.execPath,
  main: string = MAIN,
  cacheFolder?: string,
): Required<Pick<ProgramOptions, 'command' | 'env'>> {
  const text = readFileSync(join(import.meta.dirname, '../../systemd', `${unit}.service`), 'utf8')
  const flags = /^ExecStart=\S+ (.*?) ?\S+main\.js /m.exec(text)?.[1]?.split(' ')
  if (!flags) throw new Error(`the unit ${unit} does not say how it is started`)
  const settings = Array.from(text.matchAll(/^Environment=(.*)$/gm), ([, line = '']) => line)
  const env = Object.fromEntries(
    settings
      .flatMap((line) => line.split(' '))
      .filter((setting) => cacheFolder !== undefined || !setting.includes('%C'))
      .map((setting) => setting.replace('%C', cacheFolder ?? '').split('=')),
  )
  return { command: [node, ...flags, main], env }
}
