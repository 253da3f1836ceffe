import { join } from 'node:path'
import type { Config } from '../config.ts'

/** Where a gateway keeps the key to its management API between starts, readable by the owner. */
export function apiKeyPath({ dataDir }: Config['gateway']): string {
  return join(dataDir, 'api-key')
}
