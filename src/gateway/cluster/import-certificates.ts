import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Logger } from '../../base/logger.ts'
import { ACCOUNT_KEY } from '../certificates/acme/acme-authority.ts'
import { CERTIFICATES, loadCertificate } from '../certificates/certificate-file.ts'
import { isPrivateKey } from '../records/private-key.ts'
import type { Statements } from './postgres/postgres-session.ts'

/** `<domain>.<authority>.pem`; what the own CA has issued names no authority, and each gateway issues it itself. */
const FILE = /^(rd_[^.]+)\.(.+)\.pem$/

/**
 * Puts the certificates of a gateway that authorities have issued, and the key of its account with them,
 * into the transaction that is open. What cannot be used stays behind, and is ordered again.
 */
export async function importCertificates(
  statements: Statements,
  folder: string,
  log: Logger,
): Promise<void> {
  const keyPath = join(folder, ACCOUNT_KEY)
  const key = existsSync(keyPath) ? readFileSync(keyPath, 'utf8') : undefined
  if (key !== undefined && isPrivateKey(key)) {
    await statements.query(
      'INSERT INTO site_secrets (name, content) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [ACCOUNT_KEY, key],
    )
  } else if (key !== undefined) {
    log.warn(
      { file: ACCOUNT_KEY },
      'the key of the ACME account is damaged: restore it, or delete it',
    )
  }
  const certificates = join(folder, CERTIFICATES)
  const names = existsSync(certificates) ? readdirSync(certificates) : []
  for (const name of names) {
    const [, domainId, authority] = FILE.exec(name) ?? []
    if (domainId === undefined) continue
    const kept = loadCertificate(join(certificates, name), { hasIssued: () => true })
    if (!kept) {
      log.warn({ file: name }, 'a certificate cannot be read: ordering a new one')
      continue
    }
    await statements.query(
      `WITH head AS (UPDATE certificate_head SET number = number + 1 RETURNING number)
       INSERT INTO certificates (domain, authority, key_type, number, pem)
       SELECT $1, $2, $3, number, $4 FROM head`,
      [domainId, authority, kept.keyType, kept.certPem],
    )
  }
}
