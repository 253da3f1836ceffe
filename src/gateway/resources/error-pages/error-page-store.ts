import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import type { PageHead } from '../../error-pages/own-pages.ts'
import { type PageRequest, ResourceTable } from '../../records/resource-table.ts'

export const ERROR_PAGE_MIGRATIONS: readonly Migration[] = [
  {
    id: 'error-pages-1',
    sql: `CREATE TABLE error_pages (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      domain_id TEXT REFERENCES reserved_domains (id) ON DELETE CASCADE,
      kind TEXT NOT NULL,
      html TEXT NOT NULL,
      description TEXT NOT NULL,
      metadata TEXT NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX error_pages_place
      ON error_pages (coalesce(domain_id, ''), kind, coalesce(owner_id, ''));
    CREATE INDEX error_pages_domain ON error_pages (domain_id);
    CREATE INDEX error_pages_owner ON error_pages (owner_id)`,
  },
]

/** A page for visitors about one kind of error, at a reserved domain or at the whole gateway. */
export interface ErrorPage extends PageHead {
  /** Checked: see `PageTemplate`. */
  readonly html: string
  readonly description: string
  readonly metadata: string
  readonly createdAt: number
}

/** A page in a list, without its content. */
export interface ListedErrorPage extends Omit<ErrorPage, 'html'> {
  /** Bytes of the content. */
  readonly size: number
}

export class ErrorPageStore extends ResourceTable<ErrorPage> {
  readonly #listed: Statement<[string, number], ListedErrorPage>
  readonly #heads: Statement<[], PageHead>

  constructor(database: Database) {
    super({
      database,
      name: 'error_pages',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        domainId: 'plain',
        kind: 'plain',
        html: 'plain',
        description: 'plain',
        metadata: 'plain',
        createdAt: 'plain',
      },
    })
    this.#heads = database.prepare<[], PageHead>(
      'SELECT id, owner_id AS ownerId, domain_id AS domainId, kind FROM error_pages',
    )
    this.#listed = database.prepare<[string, number], ListedErrorPage>(
      `SELECT id, owner_id AS ownerId, domain_id AS domainId, kind, description, metadata,
        created_at AS createdAt, octet_length(html) AS size
      FROM error_pages WHERE id < ? ORDER BY id DESC LIMIT ?`,
    )
  }

  /** Newest first. A list with all contents could have many megabytes. */
  list({ beforeId = '~', limit }: PageRequest): ListedErrorPage[] {
    return this.#listed.all(beforeId, limit)
  }

  /** All pages without their content. */
  heads(): PageHead[] {
    return this.#heads.all()
  }

  countOf(ownerId: string | null): number {
    return this.heads().filter((page) => page.ownerId === ownerId).length
  }

  /** The page that an account has at a place for a kind. */
  at({ domainId, kind, ownerId }: Omit<PageHead, 'id'>): PageHead | undefined {
    return this.heads().find(
      (it) => it.domainId === domainId && it.kind === kind && it.ownerId === ownerId,
    )
  }
}
