import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../project.ts'
import { unitFlags } from '../unit-flags.ts'

/** Folder of the program in the image. */
export const LIB = 'usr/lib/device-agent'

/**
 * The program `device-agent` of the image, which has no shell. V8 reads these flags only when a process starts,
 * so a service replaces this process by one with the flags of its unit. Its process ID stays the same.
 */
export function imageLauncherText(): string {
  const flagsOf = (service: string, command: string) =>
    unitFlags(readFileSync(join(ROOT, `systemd/${service}.service`), 'utf8'), command)
  const flags = {
    run: flagsOf('device-agent', 'run'),
    gateway: flagsOf('device-gateway', 'gateway'),
  }
  return `#!/${LIB}/bin/node --disable-proto=delete
const main = '/${LIB}/dist/main.js'
const flags = ${JSON.stringify(flags)}
const [, , command, option = '-'] = process.argv
if (Object.hasOwn(flags, command) && option.startsWith('-')) {
  process.removeAllListeners('warning') // process.execve is experimental.
  process.execve(process.execPath, [process.execPath, ...flags[command], main, ...process.argv.slice(2)])
}
process.argv[1] = main
await import(main)
`
}
