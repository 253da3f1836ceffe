import type { SchemaStep } from '../postgres/schema.ts'

/** Told whenever claims have changed, with the number of the change. */
export const CLAIMS_CHANNEL = 'claims'

/** One node joins, or is forgotten, at a time: `dagn`. */
export const JOIN_LOCK = 0x64_61_67_6e

/** Changes that readers may be behind; beyond it, they read everything. */
const KEPT_CHANGES = 1_000

/**
 * So long the claims of a node stay after its epoch is over: it may have lost PostgreSQL alone, and serve
 * on, and its names are for their accounts alone.
 */
const SPARED_MS = 3_600_000

/**
 * The database function that changes claims. Sometimes it cleans up and releases claims of older epochs,
 * except claims that fulfil `unless`. `orHeld` finds further claims that keep a name from the caller, if no
 * claim of the same name does.
 */
const changeClaims = (
  unless: string,
  orHeld = '',
) => `FUNCTION change_claims(by_node text, in_epoch bigint, with_mark text, changes jsonb)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  latest bigint;
  change jsonb;
  holder record;
  answers jsonb[] := '{}';
BEGIN
  -- Whoever wants to give this node up waits until the change is done.
  PERFORM 1 FROM nodes WHERE id = by_node AND epoch = in_epoch FOR SHARE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  UPDATE claim_head SET number = number + 1 RETURNING number INTO latest;
  FOR change IN SELECT value FROM jsonb_array_elements(changes) LOOP
    IF change->>'do' = 'release' THEN
      UPDATE claims SET node = NULL, number = latest,
         facts = facts || jsonb_strip_nulls(jsonb_build_object('movesTo', change->'movesTo'))
       WHERE scope = change->>'scope' AND entrance = change->>'entrance'
         AND host = change->>'host' AND member = change->>'member' AND node = by_node
         AND facts->>'endpointId' = change->'facts'->>'endpointId';
      answers := answers || NULL::jsonb;
      CONTINUE;
    END IF;
    -- "Greater", because a node may have come back with an epoch that this statement does not see yet.
    SELECT c.node, c.epoch, c.facts INTO holder
      FROM claims c JOIN nodes n ON n.id = c.node
     WHERE c.scope = change->>'scope' AND c.entrance = change->>'entrance'
       AND c.host = change->>'host' AND c.node <> by_node AND NOT n.epoch > c.epoch
       AND (c.member = '' OR change->>'member' = ''
         OR c.facts->>'ownerId' IS DISTINCT FROM change->'facts'->>'ownerId')
       -- What is unknown of one of the two is no reason to take anything.
       AND NOT coalesce(change->>'do' = 'take' AND c.facts->>'kind' = 'agent'
         AND c.facts->>'ownerId' IS NOT DISTINCT FROM change->'facts'->>'ownerId'
         AND (c.facts->>'generation')::bigint <= (change->'facts'->>'generation')::bigint
         AND (c.facts->>'clientId' = change->'facts'->>'clientId'
           OR (c.facts->>'deviceId' = change->'facts'->>'deviceId'
             AND c.facts->>'instance' = change->'facts'->>'instance')), false)
     LIMIT 1;${orHeld}
    IF FOUND THEN
      answers := answers || jsonb_build_object(
        'nodeId', holder.node, 'epoch', holder.epoch, 'facts', holder.facts);
    ELSE
      INSERT INTO claims (scope, entrance, host, member, number, node, epoch, facts)
      VALUES (change->>'scope', change->>'entrance', change->>'host', change->>'member',
        latest, by_node, in_epoch, change->'facts')
      ON CONFLICT (scope, entrance, host, member) DO UPDATE
        SET number = latest, node = by_node, epoch = in_epoch, facts = excluded.facts;
      answers := answers || NULL::jsonb;
    END IF;
  END LOOP;
  INSERT INTO claim_changes VALUES (latest, with_mark);
  IF latest % ${KEPT_CHANGES} = 0 THEN
    DELETE FROM claims WHERE node IS NULL AND number <= latest - ${KEPT_CHANGES};
    UPDATE claims c SET node = NULL, number = latest
      FROM nodes n WHERE n.id = c.node AND n.epoch > c.epoch${unless};
    DELETE FROM claim_changes WHERE number < latest - ${KEPT_CHANGES};
  END IF;
  PERFORM pg_notify('${CLAIMS_CHANNEL}', latest::text);
  RETURN to_jsonb(answers);
END $$`

/** A name is one account's across HTTP, HTTPS and TLS: a claim of another account holds all of them. */
const HELD_BY_ANOTHER_ACCOUNT = `
    IF NOT FOUND AND change->>'scope' = '' AND change->>'entrance' <> 'tcp' THEN
      SELECT c.node, c.epoch, c.facts INTO holder
        FROM claims c JOIN nodes n ON n.id = c.node
       WHERE c.scope = '' AND c.entrance <> 'tcp' AND c.host = change->>'host'
         AND c.node <> by_node AND NOT n.epoch > c.epoch
         AND c.facts->>'ownerId' IS DISTINCT FROM change->'facts'->>'ownerId'
       LIMIT 1;
    END IF;`

/**
 * Nodes and claims of names.
 *
 * INVARIANTS
 * - An epoch only increases: at each start of its node, and when others give the node up. A claim is valid
 *   while its epoch is that of its node.
 * - All changes of claims lock the row of `claim_head`, so that their numbers become visible in order: a
 *   reader that saw a change saw all before it.
 * - Only the process that serves a name can take it from another node: a device has one serving link, and its
 *   newer session tells which.
 * - A released claim stays for a while as a row without a node, for readers. If it was released for another
 *   node, it names that node.
 * - Across HTTP, HTTPS and TLS, a name belongs to one account at all nodes.
 * - A removed node never returns: a gateway with its directory joins as a new node.
 */
export const CLUSTER_STEPS: readonly SchemaStep[] = [
  {
    id: 'cluster-1',
    sql: `
CREATE TABLE nodes (
  id text PRIMARY KEY,
  epoch bigint NOT NULL,
  beat bigint NOT NULL,
  standing text NOT NULL CHECK (standing IN ('serving', 'draining', 'lost', 'left')),
  facts jsonb NOT NULL
);
CREATE TABLE claims (
  scope text NOT NULL,
  entrance text NOT NULL,
  host text NOT NULL,
  member text NOT NULL,
  number bigint NOT NULL,
  node text REFERENCES nodes (id),
  epoch bigint NOT NULL,
  facts jsonb NOT NULL,
  PRIMARY KEY (scope, entrance, host, member)
);
CREATE INDEX claims_number ON claims (number);
CREATE TABLE claim_head (number bigint NOT NULL);
INSERT INTO claim_head VALUES (0);
CREATE TABLE claim_changes (number bigint PRIMARY KEY, mark text NOT NULL);

CREATE ${changeClaims('')}`,
  },
  {
    id: 'cluster-2',
    sql: `
ALTER TABLE nodes ADD COLUMN since bigint NOT NULL
  DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
CREATE FUNCTION note_standing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.standing <> OLD.standing THEN
    NEW.since := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER nodes_standing BEFORE UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION note_standing()`,
  },
  {
    id: 'cluster-3',
    sql: `
CREATE TABLE forgotten_nodes (
  id text PRIMARY KEY,
  at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
);
CREATE FUNCTION forget_node(which text, with_mark text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  found_standing text;
  latest bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(${JOIN_LOCK});
  SELECT standing INTO found_standing FROM nodes WHERE id = which FOR UPDATE;
  IF NOT FOUND OR found_standing IN ('serving', 'draining') THEN RETURN found_standing; END IF;
  UPDATE claim_head SET number = number + 1 RETURNING number INTO latest;
  -- Readers see what has changed, and not what is missing.
  UPDATE claims SET node = NULL, number = latest, facts = facts - 'movesTo'
   WHERE node = which OR (node IS NULL AND facts->>'movesTo' = which);
  INSERT INTO claim_changes VALUES (latest, with_mark);
  INSERT INTO forgotten_nodes (id) VALUES (which);
  DELETE FROM nodes WHERE id = which;
  PERFORM pg_notify('${CLAIMS_CHANNEL}', latest::text);
  RETURN 'forgotten';
END $$`,
  },
  {
    id: 'cluster-4',
    sql: `CREATE OR REPLACE ${changeClaims(`
        AND NOT (n.standing = 'lost'
          AND n.since > (extract(epoch FROM clock_timestamp()) * 1000)::bigint - ${SPARED_MS})`)}`,
  },
  {
    // A node that came back at once, or said goodbye, keeps its names for the hour, too.
    id: 'cluster-5',
    sql: `CREATE OR REPLACE ${changeClaims(
      `
        AND n.since <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - ${SPARED_MS}`,
      HELD_BY_ANOTHER_ACCOUNT,
    )};
CREATE OR REPLACE FUNCTION note_standing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.standing <> OLD.standing OR NEW.epoch <> OLD.epoch THEN
    NEW.since := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
  END IF;
  RETURN NEW;
END $$`,
  },
]
