import { MAX_ORDERS } from '../certificates/acme/acme-authority.ts'
import type { SchemaStep } from './postgres/schema.ts'

/** By how much the clock of a gateway that orders may differ from that of the database. */
const MAX_SKEW_MS = 300_000

/**
 * The certificates that authorities issue for the site.
 *
 * INVARIANTS
 * - An order belongs to its node while the node's epoch is that of the claim. Every write names both. Another
 *   node takes over an order of an ended epoch.
 * - When the node of an order is removed, the order ends, too.
 * - All changes except those of challenges lock the row of `certificate_head`, so that their numbers become
 *   visible in order.
 * - An interrupted order counts as failed. The first is followed by another at once, later ones with the
 *   delay of failures: the order itself may crash gateways.
 * - All times are those of the database.
 */
export const CERTIFICATE_STEPS: readonly SchemaStep[] = [
  {
    id: 'certificates-1',
    sql: `
CREATE TABLE certificate_head (number bigint NOT NULL);
INSERT INTO certificate_head VALUES (0);
CREATE TABLE certificates (
  domain text NOT NULL,
  authority text NOT NULL,
  key_type text NOT NULL,
  number bigint NOT NULL,
  pem text,
  node text REFERENCES nodes (id),
  epoch bigint,
  started_at bigint,
  challenge_name text,
  challenges text[] NOT NULL DEFAULT '{}',
  failures integer NOT NULL DEFAULT 0,
  failing_since bigint,
  error text,
  next_at bigint NOT NULL DEFAULT 0,
  early bigint[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (domain, authority, key_type)
);
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql AS
  'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';

CREATE FUNCTION claim_certificate(of_domain text, of_authority text, of_key_type text,
  seen bigint, by_node text, in_epoch bigint, by_clock bigint, delay_ms bigint)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  latest bigint;
  known certificates%ROWTYPE;
  is_interrupted boolean;
BEGIN
  -- Whoever wants to give this node up waits until the claim is done.
  PERFORM 1 FROM nodes WHERE id = by_node AND epoch = in_epoch FOR SHARE;
  IF NOT FOUND THEN RETURN '{"refused": "lease"}'; END IF;
  SELECT number + 1 INTO latest FROM certificate_head FOR UPDATE;
  SELECT * INTO known FROM certificates
   WHERE domain = of_domain AND authority = of_authority AND key_type = of_key_type;
  IF coalesce(known.number, 0) <> seen THEN RETURN '{"refused": "changed"}'; END IF;
  IF EXISTS (SELECT 1 FROM nodes WHERE id = known.node AND NOT epoch > known.epoch) THEN
    RETURN '{"refused": "held"}';
  END IF;
  IF abs(by_clock - now_ms()) > ${MAX_SKEW_MS} THEN RETURN '{"refused": "clock"}'; END IF;
  IF known.next_at > now_ms() THEN
    RETURN jsonb_build_object('refused', 'later', 'wait_ms', known.next_at - now_ms());
  END IF;
  IF ${MAX_ORDERS} <= (SELECT count(*) FROM certificates c JOIN nodes n ON n.id = c.node
                       WHERE NOT n.epoch > c.epoch) THEN
    RETURN '{"refused": "busy"}';
  END IF;
  is_interrupted := known.node IS NOT NULL;
  UPDATE certificate_head SET number = latest;
  IF is_interrupted AND known.failures > 0 THEN
    UPDATE certificates SET number = latest, node = NULL, epoch = NULL, challenges = '{}',
       failures = failures + 1, failing_since = coalesce(failing_since, now_ms()),
       error = 'The gateway that had ordered it ended before it was issued.',
       next_at = now_ms() + delay_ms
     WHERE domain = of_domain AND authority = of_authority AND key_type = of_key_type;
    RETURN jsonb_build_object('refused', 'later', 'wait_ms', delay_ms);
  END IF;
  INSERT INTO certificates (domain, authority, key_type, number, node, epoch, started_at)
  VALUES (of_domain, of_authority, of_key_type, latest, by_node, in_epoch, now_ms())
  ON CONFLICT (domain, authority, key_type) DO UPDATE
    SET number = latest, node = by_node, epoch = in_epoch, started_at = now_ms(), challenges = '{}',
      error = NULL, failures = certificates.failures + CASE WHEN is_interrupted THEN 1 ELSE 0 END;
  RETURN jsonb_build_object('failures',
    coalesce(known.failures, 0) + CASE WHEN is_interrupted THEN 1 ELSE 0 END);
END $$;

CREATE FUNCTION conclude_certificate(of_domain text, of_authority text, of_key_type text,
  by_node text, in_epoch bigint, new_pem text, problem text, delay_ms bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  latest bigint;
BEGIN
  SELECT number + 1 INTO latest FROM certificate_head FOR UPDATE;
  UPDATE certificates SET number = latest, node = NULL, epoch = NULL, challenges = '{}',
     pem = coalesce(new_pem, pem),
     error = problem,
     failures = CASE WHEN new_pem IS NOT NULL THEN 0
                     WHEN problem IS NOT NULL THEN failures + 1 ELSE failures END,
     failing_since = CASE WHEN new_pem IS NOT NULL THEN NULL
                          WHEN problem IS NOT NULL THEN coalesce(failing_since, now_ms())
                          ELSE failing_since END,
     next_at = now_ms() + delay_ms
   WHERE domain = of_domain AND authority = of_authority AND key_type = of_key_type
     AND node = by_node AND epoch = in_epoch;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE certificate_head SET number = latest;
  RETURN true;
END $$`,
  },
  {
    id: 'certificates-2',
    // In the order in which claims lock them: gateways that run order meanwhile.
    sql: `
LOCK TABLE nodes, certificates IN ACCESS EXCLUSIVE MODE;
ALTER TABLE certificates DROP CONSTRAINT certificates_node_fkey;
CREATE INDEX certificates_asked ON certificates (challenge_name) WHERE challenges <> '{}'`,
  },
]
