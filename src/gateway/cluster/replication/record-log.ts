import { DatabaseError } from '../postgres/database-error.ts'
import type { Row as Answer, Statements } from '../postgres/postgres-session.ts'
import type { SchemaStep } from '../postgres/schema.ts'
import {
  type Columns,
  type Entry,
  fromColumns,
  type Position,
  type RowState,
  toColumns,
  toState,
} from './entry.ts'

export const CHANNEL = 'device_gateway_records'
/** Entries kept for nodes that are behind. Nodes further behind load all rows. */
const KEPT_ENTRIES = 10_000
/** Entries in one answer. */
export const MAX_ENTRIES = 200
/** Bytes of entries in one answer, as PostgreSQL stores them (4 MiB). A single entry may be larger. */
const MAX_BYTES = 4_194_304
/** Rows in one answer when all rows are read. */
const PAGE = 2_000

/**
 * The rows of all tables as text, in the schema of the nodes' own databases, and a log of their changes.
 * Text, because the json of PostgreSQL refuses U+0000, which user input may contain.
 */
export const RECORD_STEPS: readonly SchemaStep[] = [
  {
    id: 'records-1',
    sql: `CREATE TABLE record_head (
      one boolean PRIMARY KEY DEFAULT true CHECK (one),
      n bigint NOT NULL,
      mark uuid NOT NULL,
      schema text NOT NULL
    );
    CREATE TABLE record_rows (
      table_name text NOT NULL,
      row_key text NOT NULL,
      content text NOT NULL,
      PRIMARY KEY (table_name, row_key)
    );
    CREATE TABLE record_log (
      n bigint PRIMARY KEY,
      mark uuid NOT NULL UNIQUE,
      node text NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      schema text NOT NULL,
      tables text[] NOT NULL,
      keys text[] NOT NULL,
      contents text[] NOT NULL
    );
    INSERT INTO record_head (n, mark, schema) VALUES (0, gen_random_uuid(), '[]');
    INSERT INTO record_log (n, mark, node, schema, tables, keys, contents)
      SELECT n, mark, '', schema, '{}', '{}', '{}' FROM record_head;
    CREATE FUNCTION append_records(
      seen_n bigint, seen_mark uuid, fresh uuid, by_node text, in_epoch bigint, of_schema text,
      of_tables text[], of_keys text[], of_contents text[], kept bigint
    ) RETURNS TABLE (outcome text, entry bigint) LANGUAGE plpgsql AS $$
    DECLARE
      head record_head;
      done bigint;
    BEGIN
      SELECT * INTO STRICT head FROM record_head FOR UPDATE;
      SELECT log.n INTO done FROM record_log log WHERE log.mark = fresh;
      IF FOUND THEN RETURN QUERY SELECT 'taken', done; RETURN; END IF;
      IF in_epoch IS NOT NULL THEN
        -- Whoever wants to give this node up waits until the entry is made.
        PERFORM 1 FROM nodes WHERE id = by_node AND epoch = in_epoch FOR SHARE;
        IF NOT FOUND THEN RETURN QUERY SELECT 'fenced', head.n; RETURN; END IF;
      END IF;
      IF head.schema <> of_schema THEN RETURN QUERY SELECT 'schema', head.n; RETURN; END IF;
      IF head.n <> seen_n OR head.mark <> seen_mark THEN
        RETURN QUERY SELECT 'conflict', head.n; RETURN;
      END IF;
      IF cardinality(of_tables) = 0 THEN RETURN QUERY SELECT 'taken', head.n; RETURN; END IF;
      PERFORM keep_records(of_tables, of_keys, of_contents);
      INSERT INTO record_log (n, mark, node, schema, tables, keys, contents)
        VALUES (head.n + 1, fresh, by_node, of_schema, of_tables, of_keys, of_contents);
      DELETE FROM record_log WHERE record_log.n <= head.n + 1 - kept;
      UPDATE record_head SET n = head.n + 1, mark = fresh;
      PERFORM pg_notify('${CHANNEL}', (head.n + 1)::text);
      RETURN QUERY SELECT 'taken', head.n + 1;
    END $$;
    CREATE FUNCTION keep_records(of_tables text[], of_keys text[], of_contents text[])
    RETURNS void LANGUAGE sql AS $$
      DELETE FROM record_rows USING unnest(of_tables, of_keys, of_contents) AS gone (t, k, c)
        WHERE table_name = gone.t AND row_key = gone.k AND gone.c IS NULL;
      INSERT INTO record_rows
        SELECT t, k, c FROM unnest(of_tables, of_keys, of_contents) AS kept (t, k, c)
        WHERE c IS NOT NULL
        ON CONFLICT (table_name, row_key) DO UPDATE SET content = excluded.content;
    $$`,
  },
]

/** Position of the newest entry, and the schema of all rows. */
export interface Head extends Position {
  readonly schema: string
}

/**
 * An entry to append after `seen`. Its random `mark` is stored only once, even if the proposal is sent twice.
 */
export interface Proposal {
  readonly seen: Position
  readonly mark: string
  readonly node: string
  /** Epoch of the node; undefined before it joins the cluster. */
  readonly epoch: number | undefined
  readonly schema: string
  readonly rows: readonly RowState[]
}

/**
 * `taken`: stored as entry `n`; without rows, `n` is the head. `conflict`: another node appended first.
 * `schema`: the rows have another schema now. `fenced`: the epoch of the node has ended.
 */
export interface Outcome {
  readonly outcome: 'taken' | 'conflict' | 'schema' | 'fenced'
  readonly n: number
}

/** All rows, with the newest entry that they include. */
export interface Snapshot extends Head {
  readonly rows: readonly RowState[]
}

/** Appends an entry by one message, so that the head is locked only while the server works. */
export async function append(
  statements: Statements,
  { seen, mark, node, epoch, schema, rows }: Proposal,
  keptEntries = KEPT_ENTRIES,
): Promise<Outcome> {
  const [answer] = await statements.query<{ outcome: Outcome['outcome']; entry: number }>(
    `SELECT outcome, entry FROM append_records($1::bigint, $2::uuid, $3::uuid, $4::text, $5::bigint,
       $6::text, $7::text[], $8::text[], $9::text[], $10::bigint)`,
    [seen.n, seen.mark, mark, node, epoch ?? null, schema, ...toColumns(rows), keptEntries],
  )
  if (!answer) throw new DatabaseError('database-error', 'empty answer')
  return { outcome: answer.outcome, n: answer.entry }
}

/**
 * Returns the entries after `seen`: at most `most`, and as many as fit in one answer. Undefined if the log no
 * longer has `seen`, or has another entry with its number.
 */
export async function entriesFrom(
  statements: Statements,
  seen: Position,
  most = MAX_ENTRIES,
): Promise<readonly Entry[] | undefined> {
  // Computes sizes without reading large contents. Of `seen` itself, only the mark is needed.
  const rows = await statements.query<Answer & Omit<Entry, 'rows'> & Columns>(
    `WITH behind AS (
       SELECT n, sum(CASE n WHEN $1::bigint THEN 0 ELSE pg_column_size(contents) END) OVER (ORDER BY n)
         AS size
       FROM (SELECT n, contents FROM record_log WHERE n >= $1::bigint ORDER BY n LIMIT $2::int + 1) f)
     SELECT n, mark, schema, CASE n WHEN $1::bigint THEN '{}' ELSE tables END AS tables,
       CASE n WHEN $1::bigint THEN '{}' ELSE keys END AS keys,
       CASE n WHEN $1::bigint THEN '{}' ELSE contents END AS contents
     FROM record_log JOIN behind USING (n)
     WHERE n >= $1::bigint AND (n <= $1::bigint + 1 OR size <= ${MAX_BYTES}) ORDER BY n`,
    [seen.n, most],
  )
  const [first, ...behind] = rows
  if (first?.n !== seen.n || first.mark !== seen.mark) return undefined
  return behind.map(({ n, mark, schema, ...columns }) => ({
    ...{ n, mark, schema },
    rows: fromColumns(columns),
  }))
}

/** Reads the head. With `lock`, no other node appends until the transaction ends. */
export async function readHead(statements: Statements, { lock = false } = {}): Promise<Head> {
  const [head] = await statements.query<Answer & Head>(
    `SELECT n, mark, schema FROM record_head ${lock ? 'FOR UPDATE' : ''}`,
  )
  if (!head) throw new DatabaseError('database-error', 'the head of the log is missing')
  return head
}

/** Reads all rows in the open transaction. */
export async function readAllRows(statements: Statements): Promise<RowState[]> {
  const rows: RowState[] = []
  let last: readonly [string, string] = ['', '']
  for (;;) {
    const page = await statements.query<{ table_name: string; row_key: string; content: string }>(
      `SELECT table_name, row_key, content FROM record_rows WHERE (table_name, row_key) > ($1, $2)
       ORDER BY table_name, row_key LIMIT ${PAGE}`,
      last,
    )
    for (const { table_name: table, row_key, content } of page) {
      rows.push(toState(table, row_key, content))
      last = [table, row_key]
    }
    if (page.length < PAGE) return rows
  }
}

/** Reads the head and all rows as of one moment. */
export async function readSnapshot(statements: Statements): Promise<Snapshot> {
  await statements.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
  const head = await readHead(statements)
  return { ...head, rows: await readAllRows(statements) }
}

/** Stores and deletes rows without notifying other nodes. */
export async function keepRecords(
  statements: Statements,
  rows: readonly RowState[],
): Promise<void> {
  await statements.query('SELECT keep_records($1::text[], $2::text[], $3::text[])', toColumns(rows))
}

/** Appends an entry that changes the schema. The caller has locked the head. */
export async function appendUpgrade(
  statements: Statements,
  { seen, mark, node, schema, rows }: Omit<Proposal, 'epoch'>,
): Promise<Position> {
  const n = seen.n + 1
  await keepRecords(statements, rows)
  await statements.query(
    `INSERT INTO record_log (n, mark, node, schema, tables, keys, contents)
     VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [n, mark, node, schema, ...toColumns(rows)],
  )
  await statements.query('UPDATE record_head SET n = $1, mark = $2, schema = $3', [n, mark, schema])
  await statements.query('SELECT pg_notify($1::text, $2::text)', [CHANNEL, String(n)])
  return { n, mark }
}
