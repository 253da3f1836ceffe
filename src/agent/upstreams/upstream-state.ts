/**
 * How the local service behind a tunnel does. `busy`: it takes no more connections. `slow`: it takes connections and does not answer in
 * time; that may be its nature, so it is never called down. `garbage`: what it answers is no HTTP.
 * `untrusted`: the certificate that it shows cannot be. `old_tls`: its TLS is too old to agree with.
 */
export type Upstream =
  | 'unknown'
  | 'up'
  | 'slow'
  | 'busy'
  | 'garbage'
  | 'untrusted'
  | 'old_tls'
  | 'down'

/** `connected`: it took a connection, which says nothing about what it answers. */
export type UpstreamEvent =
  | 'connected'
  | 'answered'
  | 'hung'
  | 'crowded'
  | 'garbled'
  | 'untrusted'
  | 'old-tls'
  | 'failed'

const SEEN = {
  answered: 'up',
  hung: 'slow',
  crowded: 'busy',
  garbled: 'garbage',
  untrusted: 'untrusted',
  'old-tls': 'old_tls',
  failed: 'down',
} as const

const NEXT: Record<Upstream, Partial<Record<UpstreamEvent, Upstream>>> = {
  unknown: { ...SEEN, connected: 'up' },
  up: SEEN,
  slow: SEEN,
  busy: SEEN,
  garbage: SEEN,
  // No connection is taken for one before its certificate is trusted.
  untrusted: { ...SEEN, connected: 'up' },
  old_tls: { ...SEEN, connected: 'up' },
  down: { ...SEEN, connected: 'up' },
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextUpstream(state: Upstream, event: UpstreamEvent): Upstream {
  return NEXT[state][event] ?? state
}
