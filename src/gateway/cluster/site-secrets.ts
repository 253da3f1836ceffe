import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import { createPrivateKeyPem } from '../records/private-key.ts'
import type { SharedMaterial } from './nodes/shared-material.ts'

/** What devices trust, and what log-ins are sealed with: the same wherever they come in. */
const SECRETS: Readonly<Record<string, () => Promise<string>>> = {
  'ca.key': createPrivateKeyPem,
  'login.key': async () => `${randomBytes(32).toString('base64url')}\n`,
}
/** Made of a key, and made again where that is another one. */
const MADE_OF: Readonly<Record<string, string>> = { 'ca.key': 'ca.pem' }

/** Whether a folder has all that it takes without the database. */
export function hasSecrets(folder: string): boolean {
  return Object.keys(SECRETS).every((name) => existsSync(join(folder, name)))
}

/**
 * Brings the secrets of the site into a folder. Those of the first node become the site's; what another
 * one had before lies beside them afterwards. Throws DatabaseErrors.
 */
export async function shareSecrets(
  folder: string,
  material: Pick<SharedMaterial, 'findSecret' | 'keepSecret'>,
  log: Logger,
): Promise<void> {
  for (const [name, make] of Object.entries(SECRETS)) {
    const path = join(folder, name)
    const own = existsSync(path) ? readFileSync(path, 'utf8') : undefined
    const kept =
      (await material.findSecret(name)) ?? (await material.keepSecret(name, own ?? (await make())))
    if (kept === own) continue
    if (own !== undefined) {
      log.warn({ path }, 'the cluster has another key: the local file was moved aside')
      putAside(path)
    }
    const made = MADE_OF[name]
    if (made !== undefined && existsSync(join(folder, made))) putAside(join(folder, made))
    writeFileDurably(path, kept)
  }
}

function putAside(path: string): void {
  renameSync(path, `${path}.before-joining`)
}
