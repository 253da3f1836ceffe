import { join } from 'node:path'
import type { Config } from '../config.ts'

/** Path of the file with the key of the management API. Only the owner can read it. */
export function apiKeyPath({ dataDir }: Config['gateway']): string {
  return join(dataDir, 'api-key')
}

/** Path of the file with the authtoken of the first device. */
export function firstAuthtokenPath({ dataDir }: Config['gateway']): string {
  return join(dataDir, 'authtoken')
}
