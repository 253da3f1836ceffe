import type { AuthorityPem } from '../peers/cluster-authority.ts'
import type { ClusterMaterial, KeptJoinToken } from '../peers/join-token.ts'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import type { SchemaStep } from '../postgres/schema.ts'

export const MATERIAL_STEPS: readonly SchemaStep[] = [
  {
    id: 'cluster-material-1',
    sql: `
CREATE TABLE cluster_authority (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  cert_pem text NOT NULL,
  key_pem text NOT NULL
);
CREATE TABLE join_tokens (
  id text PRIMARY KEY,
  hash text NOT NULL,
  expires_at bigint NOT NULL,
  used_by text
)`,
  },
  {
    id: 'cluster-material-2',
    sql: 'CREATE TABLE site_secrets (name text PRIMARY KEY, content text NOT NULL)',
  },
]

/** Expired tokens are deleted when another is made. */
const FORGET = 'DELETE FROM join_tokens WHERE expires_at < $1'
const FORGET_AFTER_MS = 7 * 86_400_000

/** Identity material of the nodes in their shared database. Throws DatabaseErrors. */
export class SharedMaterial implements ClusterMaterial {
  readonly #connection: PostgresConnection

  constructor(connection: PostgresConnection) {
    this.#connection = connection
  }

  async keepAuthority(make: () => Promise<AuthorityPem>): Promise<AuthorityPem> {
    const kept = await this.findAuthority()
    if (kept) return kept
    const { certPem, keyPem } = await make()
    await this.#connection.query(
      'INSERT INTO cluster_authority (cert_pem, key_pem) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [certPem, keyPem],
    )
    // Another node may have been quicker.
    return (await this.findAuthority()) ?? { certPem, keyPem }
  }

  async keepJoinToken({ id, hash, expiresAt }: KeptJoinToken): Promise<void> {
    await this.#connection.transaction(async (statements) => {
      await statements.query(FORGET, [expiresAt - FORGET_AFTER_MS])
      await statements.query('INSERT INTO join_tokens (id, hash, expires_at) VALUES ($1, $2, $3)', [
        id,
        hash,
        expiresAt,
      ])
    })
  }

  async findJoinToken(id: string): Promise<KeptJoinToken | undefined> {
    const [row] = await this.#connection.query<{
      hash: string
      expires_at: number
      used_by: string | null
    }>('SELECT hash, expires_at, used_by FROM join_tokens WHERE id = $1', [id])
    return (
      row && { id, hash: row.hash, expiresAt: row.expires_at, usedBy: row.used_by ?? undefined }
    )
  }

  async useJoinToken(id: string, nodeId: string): Promise<boolean> {
    const rows = await this.#connection.query(
      'UPDATE join_tokens SET used_by = $2 WHERE id = $1 AND used_by IS NULL RETURNING id',
      [id, nodeId],
    )
    return rows.length === 1
  }

  /** Stores a secret of the site unless its name exists. Returns the stored one. */
  async keepSecret(name: string, content: string): Promise<string> {
    await this.#connection.query(
      'INSERT INTO site_secrets (name, content) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [name, content],
    )
    const kept = await this.findSecret(name)
    if (kept === undefined) throw new Error(`the secret ${name} was not saved`)
    return kept
  }

  async findSecret(name: string): Promise<string | undefined> {
    const [row] = await this.#connection.query<{ content: string }>(
      'SELECT content FROM site_secrets WHERE name = $1',
      [name],
    )
    return row?.content
  }

  /** Undefined before the first node has joined. */
  async findAuthority(): Promise<AuthorityPem | undefined> {
    const [row] = await this.#connection.query<{ cert_pem: string; key_pem: string }>(
      'SELECT cert_pem, key_pem FROM cluster_authority',
    )
    return row && { certPem: row.cert_pem, keyPem: row.key_pem }
  }
}
