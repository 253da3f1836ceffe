import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryFolder } from './temporary-folder.ts'

export const LOOPBACK = '0100007F'
export const LISTENING = '0A'

type Row = readonly [port: number, address?: string, state?: string]

/** Path of a table of sockets, as the kernel of a little-endian machine writes it. */
export function socketTable(...rows: readonly Row[]): string {
  const lines = rows.map(([port, address = LOOPBACK, state = LISTENING], at) => {
    const hex = port.toString(16).toUpperCase().padStart(4, '0')
    return `  ${at}: ${address}:${hex} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000 0 0 77 1`
  })
  const path = join(temporaryFolder(), 'tcp')
  writeFileSync(path, ['  sl  local_address rem_address   st', ...lines, ''].join('\n'))
  return path
}
